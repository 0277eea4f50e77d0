/* Conformance of transports: collectives in registered buffers, at any offset, of any
 * size, beside collectives in other memory and messages, and on a device whose memory
 * the CPU cannot read. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "registered.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/test.h"
#include "unit/core/comm/discrete_device.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 7, 8};
enum { COUNTS = sizeof rank_counts / sizeof *rank_counts };

enum { ROOM = 120000 /* floats */ };

static size_t slice(size_t count, int rank, int ranks) {
    return count * (size_t)rank / (size_t)ranks;
}

/* One collective; the elements before and after `at` must not change. */
typedef struct trial {
    float *at;
    size_t count;
    uint64_t salt;
} trial;

static void begin(const group *g, const trial *t) {
    reference_fill(t->salt, g->rank->rank, t->count, t->at);
    t->at[-1] = 41.0f;
    t->at[t->count] = 42.0f;
}

static void end(const group *g, const trial *t) {
    RANK_CHECK(g->rank, t->at[-1] == 41.0f);
    RANK_CHECK(g->rank, t->at[t->count] == 42.0f);
}

static void try_all_reduce(group *g, const trial *t) {
    if (!DLC_CAN(g->ops, all_reduce) || !registered_is_pairwise(g))
        return;
    begin(g, t);
    RANK_OK(g->rank, group_all_reduce(g, t->at, t->count));
    RANK_CHECK(g->rank,
               reference_wrong(t->salt, g->rank->ranks, 0, t->count, t->at) == 0);
    end(g, t);
}

static void try_reduce_scatter(group *g, const trial *t) {
    int me = g->rank->rank, ranks = g->rank->ranks;
    if (!DLC_CAN(g->ops, reduce_scatter) || !registered_is_pairwise(g))
        return;
    begin(g, t);
    RANK_OK(g->rank, group_reduce_scatter(g, t->at, t->count));
    RANK_CHECK(g->rank, reference_wrong(t->salt, ranks, slice(t->count, me, ranks),
                                        slice(t->count, me + 1, ranks), t->at) == 0);
    end(g, t);
}

static void try_all_gather(group *g, const trial *t) {
    int ranks = g->rank->ranks;
    if (!DLC_CAN(g->ops, all_gather))
        return;
    begin(g, t);
    RANK_OK(g->rank, group_all_gather(g, t->at, t->count));
    for (int r = 0; r < ranks; r++)
        for (size_t i = slice(t->count, r, ranks); i < slice(t->count, r + 1, ranks);
             i++)
            RANK_CHECK(g->rank, t->at[i] == reference_value(t->salt, r, i));
    end(g, t);
}

/* Not in multiples of elements, and from an odd byte on. */
static void try_broadcast(group *g, const trial *t) {
    int root = (int)(t->salt % (uint64_t)g->rank->ranks);
    size_t odd = t->count > 0, bytes = t->count * sizeof(float) - 2 * odd;
    unsigned char *at = (unsigned char *)t->at;
    if (!DLC_CAN(g->ops, broadcast))
        return;
    group_write(at, t->count * sizeof(float), g->rank->rank, 0, t->salt);
    t->at[-1] = 41.0f;
    t->at[t->count] = 42.0f;
    RANK_OK(g->rank, group_broadcast(g, root, at + odd, bytes));
    if (odd) { /* the first and the last byte are still this rank's */
        unsigned char *own = dlc_alloc(t->count, sizeof(float));
        RANK_CHECK(g->rank, own);
        group_write(own, t->count * sizeof(float), g->rank->rank, 0, t->salt);
        RANK_CHECK(g->rank, at[0] == own[0] && at[bytes + 1] == own[bytes + 1]);
        group_write(own, t->count * sizeof(float), root, 0, t->salt);
        RANK_CHECK(g->rank, memcmp(at + 1, own + 1, bytes) == 0);
        dlc_free(own);
    }
    end(g, t);
}

static void try_all(group *g, const trial *t) {
    trial next = *t;
    try_all_reduce(g, t);
    next.salt++;
    try_reduce_scatter(g, &next);
    next.salt++;
    try_all_gather(g, &next);
    next.salt++;
    try_broadcast(g, &next);
}

/* ---- Offsets and sizes ---------------------------------------------------------- */

static void everywhere_body(test_rank *rank, void *context) {
    static const size_t counts[] = {0, 1,  2,   3,    4,    5,    7,     8,
                                    9, 31, 100, 1023, 1024, 4097, 16384, 16385};
    static const size_t offsets[] = {1, 2, 16, 1031};
    dlc_memory weights, gradients;
    group g;

    group_open(&g, rank, context);
    size_t step = g.device_memory || SANITIZED ? 4 : 1;
    float *one = register_floats(&g, 40000, &weights),
          *two = register_floats(&g, ROOM, &gradients);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t k = i % step; k < sizeof offsets / sizeof *offsets; k += step) {
            float *arena = (i + k) % 2 ? one : two;
            trial t = {arena + offsets[k], counts[i], 1000 * i + 10 * k};
            try_all(&g, &t);
        }
    trial t = {two + 1, ROOM - 2, 7};
    try_all(&g, &t);
    registered_finish(&g, &weights, &gradients);
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(everywhere, COUNTS) {
    if (rank_counts[_i] <= group_most_ranks())
        registered_run_all(rank_counts[_i], 0, everywhere_body);
}

/* The whole buffer, to its first and last byte; and a buffer that is one element too
 * small. */
static void edges_body(test_rank *rank, void *context) {
    enum { SMALL = 1000 };
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = register_floats(&g, SMALL, &memory), *outside = dlc_alloc(SMALL, 4);
    RANK_CHECK(rank, outside);
    for (uint64_t salt = 0; salt < 20 && registered_is_pairwise(&g); salt++) {
        float *at = salt % 3 ? arena : outside;
        size_t count = salt % 2 ? SMALL : 1;
        at += salt % 2 ? 0 : SMALL - 1;
        reference_fill(salt, rank->rank, count, at);
        RANK_OK(rank, group_all_reduce(&g, at, count));
        RANK_CHECK(rank, reference_wrong(salt, rank->ranks, 0, count, at) == 0);
    }
    dlc_free(outside);
    registered_finish(&g, &memory, NULL);
}

TEST(edges) {
    registered_run_all(3, 0, edges_body);
}

/* In registered and other memory, with pauses, and with a message in flight. */
static void mixture_body(test_rank *rank, void *context) {
    dlc_random same = dlc_random_make(5, 5), mine = dlc_random_make(5, 10 + rank->rank);
    int me = rank->rank, ranks = rank->ranks;
    int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    unsigned char out[5000], in[5000];
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = register_floats(&g, ROOM, &memory),
          *outside = dlc_alloc(ROOM, sizeof(float));
    RANK_CHECK(rank, outside);
    for (uint64_t round = 0; round < 50; round++) {
        size_t count = (size_t)dlc_random_below(&same, round % 4 ? 3000 : 60000);
        size_t offset = 1 + (size_t)dlc_random_below(&same, ROOM - (int)count - 2);
        trial t = {(dlc_random_below(&same, 3) ? arena : outside) + offset, count,
                   round};
        dlc_request *send, *recv;
        if (dlc_random_below(&mine, 4) == 0)
            usleep((unsigned)dlc_random_below(&mine, 1000));
        group_write(out, sizeof out, me, to, round);
        group_send(&g, to, round, out, sizeof out, &send);
        switch (dlc_random_below(&same, 5)) {
        case 0:
            try_reduce_scatter(&g, &t);
            break;
        case 1:
            try_all_gather(&g, &t);
            break;
        case 2:
            try_broadcast(&g, &t);
            break;
        default:
            try_all_reduce(&g, &t);
        }
        group_recv(&g, from, round, in, sizeof in, &recv);
        group_wait(&g, recv);
        group_wait(&g, send);
        RANK_CHECK(rank, group_is(in, sizeof in, from, me, round));
    }
    dlc_free(outside);
    registered_finish(&g, &memory, NULL);
}

TEST_EACH(mixture, COUNTS) {
    if (rank_counts[_i] > 1 && rank_counts[_i] <= group_most_ranks())
        registered_run_all(rank_counts[_i], 0, mixture_body);
}

/* Megabytes, repeatedly, on the results of the last round. */
static void large_body(test_rank *rank, void *context) {
    enum { LARGE = SANITIZED ? 300007 : 2000003, ROUNDS = SANITIZED ? 2 : 4 };
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = register_floats(&g, LARGE, &memory);
    trial t = {arena + 1, LARGE - 2, 1};
    try_all_reduce(&g, &t);
    if (registered_is_pairwise(&g)) {
        for (int i = 0; i < ROUNDS; i++) {
            memset(arena, 0, LARGE * sizeof *arena);
            arena[LARGE / 2] = (float)rank->rank;
            RANK_OK(rank, group_all_reduce(&g, arena, LARGE));
            int all = rank->ranks * (rank->ranks - 1) / 2;
            float sum = (float)all;
            for (size_t k = 0; k < LARGE; k++)
                RANK_CHECK(rank, arena[k] == (k == LARGE / 2 ? sum : 0.0f));
        }
    }
    registered_finish(&g, &memory, NULL);
}

TEST(large) {
    registered_run_all(2, 0, large_body);
    registered_run_all(group_has_device_memory() || SANITIZED ? 3 : 5, 0, large_body);
}

/* ---- A device whose memory the CPU cannot read ---------------------------------- */

static const dlc_device_ops *cpu;

static dlc_status far_export(dlc_device *device, const dlc_memory *memory,
                             dlc_ipc_handle *share) {
    return cpu->ipc_export(device, memory, share);
}

static dlc_status far_import(dlc_device *device, const dlc_ipc_handle *share,
                             dlc_memory *memory) {
    dlc_status status = cpu->ipc_import(device, share, memory);
    if (status == DLC_OK)
        memory->base = (void *)((uintptr_t)memory->base | (uintptr_t)1 << 62);
    return status;
}

static void far_body(test_rank *rank, void *context) {
    enum { COUNT = 70001 };
    float *near = dlc_alloc(COUNT, sizeof *near);
    dlc_memory memory, other = {.size = sizeof other};
    group g;

    group_prepare(&g, rank, context);
    RANK_CHECK(rank, near);
    cpu = g.device_ops;
    dlc_device_ops far = *discrete_device(cpu);
    far.ipc_export = far_export;
    far.ipc_import = far_import;
    g.device_ops = g.args.device_ops = &far;
    RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
    float *arena = register_floats(&g, COUNT + 2, &memory);
    RANK_OK(rank, far.alloc(g.device, (COUNT + 2) * sizeof *near, 0, &other));
    for (uint64_t salt = 0; salt < 12; salt++) {
        size_t count = salt % 3 ? COUNT : 100, bytes = count * sizeof *near;
        float *at = (salt % 2 ? arena : (float *)other.base) + 1;
        reference_fill(salt, rank->rank, count, near);
        RANK_OK(rank, far.copy(g.device, NULL, at, near, bytes));
        if (salt % 4 < 2) {
            RANK_OK(rank, g.ops->all_reduce(g.endpoint, at, count));
        } else {
            RANK_OK(rank, g.ops->reduce_scatter(g.endpoint, at, count));
            RANK_OK(rank, g.ops->all_gather(g.endpoint, at, count));
        }
        RANK_OK(rank, far.copy(g.device, NULL, near, at, bytes));
        RANK_CHECK(rank, reference_wrong(salt, rank->ranks, 0, count, near) == 0);
        RANK_OK(rank, g.ops->broadcast(g.endpoint, 1, at, bytes));
    }
    g.ops->close(g.endpoint);
    g.endpoint = NULL;
    far.free(g.device, &memory);
    far.free(g.device, &other);
    dlc_free(near);
    group_close(&g);
}

TEST(far_memory) {
    for (int i = 0; i < REGISTERED_SETTINGS && !group_has_device_memory(); i++)
        registered_run(&registered_settings[i], 3, 0, far_body);
    plugins_close();
}
