/* The ucx transport with a device whose memory neither the CPU nor UCX can read: all
 * messages go in chunks through host memory, in any order, in both directions, also
 * where only some of the ranks have such a device. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "discrete_device.h"
#include "group.h"
#include "support/test.h"

enum { CHUNK = 16384 };
static const char *const small_chunks[] = {"chunk_bytes=16K", NULL};
static const char *const small_chunks_tcp[] = {"chunk_bytes=16K", "tls=tcp,self", NULL};
static const char *const *const settings[] = {small_chunks, small_chunks_tcp, NULL};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* A bit for each rank that has a device with memory of its own. */
typedef struct setup {
    group_kind kind;
    unsigned far;
} setup;

static void open_far(group *g, test_rank *rank, const setup *s) {
    group_prepare(g, rank, &s->kind);
    if (s->far >> rank->rank & 1)
        g->args.device_ops = discrete_device(g->device_ops);
    RANK_OK(rank, g->ops->open(&g->args, &g->endpoint));
}

static dlc_memory room(group *g, size_t bytes) {
    dlc_memory memory = {.size = sizeof memory};
    RANK_OK(g->rank, g->args.device_ops->alloc(g->device, bytes + 1, 0, &memory));
    return memory;
}

static void give_back(group *g, dlc_memory *memory) {
    g->args.device_ops->free(g->device, memory);
}

static void fill(group *g, dlc_memory *memory, size_t bytes, int to, uint64_t what) {
    unsigned char *near = dlc_alloc(bytes + 1, 1);
    RANK_CHECK(g->rank, near);
    group_write(near, bytes, g->rank->rank, to, what);
    RANK_OK(g->rank,
            g->args.device_ops->copy(g->device, NULL, memory->base, near, bytes));
    dlc_free(near);
}

static int holds(group *g, const dlc_memory *memory, size_t bytes, int from,
                 uint64_t what) {
    unsigned char *near = dlc_alloc(bytes + 1, 1);
    RANK_CHECK(g->rank, near);
    RANK_OK(g->rank,
            g->args.device_ops->copy(g->device, NULL, near, memory->base, bytes));
    int same = group_is(near, bytes, from, g->rank->rank, what);
    dlc_free(near);
    return same;
}

static void run(int ranks, rank_body *body, const setup *s) {
    ck_assert_int_eq(ranks_run(ranks, 60, body, (void *)s), 0);
    plugins_close();
}

static void sizes_body(test_rank *rank, void *context) {
    static const size_t sizes[] = {
        0, 1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 7 * CHUNK + 3, 3000000};
    int to = (rank->rank + 1) % rank->ranks;
    int from = (rank->rank + rank->ranks - 1) % rank->ranks;
    group g;

    open_far(&g, rank, context);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        dlc_memory out = room(&g, sizes[i]), in = room(&g, sizes[i]);
        dlc_request *send, *recv;
        fill(&g, &out, sizes[i], to, i);
        group_send(&g, to, 5, out.base, sizes[i], &send);
        group_recv(&g, from, 5, in.base, sizes[i], &recv);
        group_wait(&g, recv);
        group_wait(&g, send);
        RANK_CHECK(rank, holds(&g, &in, sizes[i], from, i));
        give_back(&g, &out);
        give_back(&g, &in);
    }
    group_close(&g);
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(sizes, SETTINGS) {
    for (int ranks = 1; ranks <= 4 && ranks <= group_most_ranks(); ranks++) {
        setup all = {{"ucx", settings[_i]}, ~0u}, some = {{"ucx", settings[_i]}, 2u};
        run(ranks, sizes_body, &all);
        run(ranks, sizes_body, &some);
    }
}

/* All ranks send everything before any receives, and receive in another order: chunks
 * must become free although no receive is posted for their contents. */
static void flood_body(test_rank *rank, void *context) {
    enum { EACH = 6, MOST = 64 };
    int me = rank->rank, ranks = rank->ranks;
    dlc_memory out[MOST], in[MOST];
    dlc_request *send[MOST], *recv[MOST];
    group g;

    open_far(&g, rank, context);
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < EACH; k++) {
            int i = r * EACH + k;
            size_t bytes = (size_t)k * 40000 + 7;
            if (r == me)
                continue;
            out[i] = room(&g, bytes);
            fill(&g, &out[i], bytes, r, (uint64_t)k);
            group_send(&g, r, (dlc_tag)(k / 2), out[i].base, bytes, &send[i]);
        }
    usleep(20000);
    for (int r = 0; r < ranks; r++) /* the last tag first; each tag in order */
        for (int n = 0; n < EACH; n++) {
            int k = (EACH - 2 - n / 2 * 2) + n % 2, i = r * EACH + k;
            size_t bytes = (size_t)k * 40000 + 7;
            if (r == me)
                continue;
            in[i] = room(&g, bytes);
            group_recv(&g, r, (dlc_tag)(k / 2), in[i].base, bytes, &recv[i]);
            if (n % 3 == 0) {
                group_wait(&g, recv[i]);
                recv[i] = NULL;
            }
        }
    for (int i = 0; i < ranks * EACH; i++) {
        size_t bytes = (size_t)(i % EACH) * 40000 + 7;
        if (i / EACH == me)
            continue;
        if (recv[i])
            group_wait(&g, recv[i]);
        group_wait(&g, send[i]);
        RANK_CHECK(rank, holds(&g, &in[i], bytes, i / EACH, (uint64_t)(i % EACH)));
        give_back(&g, &in[i]);
        give_back(&g, &out[i]);
    }
    group_close(&g);
}

TEST_EACH(flood, SETTINGS) {
    for (int ranks = 2; ranks <= 5 && ranks <= group_most_ranks(); ranks++) {
        setup all = {{"ucx", settings[_i]}, ~0u}, some = {{"ucx", settings[_i]}, 5u};
        run(ranks, flood_body, &all);
        run(ranks, flood_body, &some);
    }
}

/* Sizes that differ, with the receive posted before and after arrival; later messages
 * are intact. */
static void wrong_body(test_rank *rank, void *context) {
    dlc_memory memory;
    dlc_request *bad, *good;
    group g;

    open_far(&g, rank, context);
    memory = room(&g, 100000);
    for (int late = 0; late < 2; late++) {
        if (rank->rank == 0) {
            fill(&g, &memory, 50000, 1, 1);
            group_send(&g, 1, 1, memory.base, 50000, &bad);
            group_send(&g, 1, 2, memory.base, 50000, &good);
            group_wait(&g, bad);
            group_wait(&g, good);
            continue;
        }
        if (!late)
            group_recv(&g, 0, 1, memory.base, 49999, &bad);
        group_recv(&g, 0, 2, memory.base, 50000, &good);
        group_wait(&g, good);
        RANK_CHECK(rank, holds(&g, &memory, 50000, 0, 1));
        if (late)
            group_recv(&g, 0, 1, memory.base, 49999, &bad);
        RANK_CHECK(rank, g.ops->wait(g.endpoint, bad) == DLC_ERR_CONFIG);
        RANK_CHECK(rank, strstr(dlc_detail(), "50000 bytes were sent, 49999") != NULL);
    }
    give_back(&g, &memory);
    group_close(&g);
}

TEST_EACH(wrong, SETTINGS) {
    setup all = {{"ucx", settings[_i]}, 3u};
    run(2, wrong_body, &all);
}

/* Closed with chunks of all kinds in flight. */
static void closed_body(test_rank *rank, void *context) {
    int to = (rank->rank + 1) % rank->ranks;
    dlc_memory memory;
    dlc_request *request;
    char text[256] = "";
    group g;

    open_far(&g, rank, context);
    RANK_OK(rank, g.ops->describe(g.endpoint, text, sizeof text));
    RANK_CHECK(rank, strstr(text, "through host memory") != NULL);
    memory = room(&g, 1000000);
    for (int i = 0; i < 3; i++)
        group_send(&g, to, 1, memory.base, 1000000, &request);
    group_recv(&g, to, 2, memory.base, 1000000, &request);
    for (int i = 0, done; i < 20 * rank->rank; i++)
        RANK_OK(rank, g.ops->test(g.endpoint, request, &done));
    ranks_barrier(rank);
    g.ops->close(g.endpoint);
    g.endpoint = NULL;
    give_back(&g, &memory);
    group_close(&g);
}

TEST_EACH(closed, SETTINGS) {
    setup all = {{"ucx", settings[_i]}, ~0u};
    run(3, closed_body, &all);
}
