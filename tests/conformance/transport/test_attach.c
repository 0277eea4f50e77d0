/* Collectives in attached memory: at any place in it, of any size, beside collectives
 * elsewhere and messages, and what happens when ranks disagree or die meanwhile. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "group.h"
#include "support/reference.h"

/* What is under test: every transport that attaches memory, in every way it may. */
static const char *const direct[] = {"schedule=direct", NULL};
static const char *const tree[] = {"schedule=tree", NULL};
static const char *const tree_in_bits[] = {"schedule=tree", "chunk_bytes=64", NULL};
static const char *const asleep[] = {"schedule=tree", "spin_us=0", NULL};
static const group_kind ways[] = {{"p2p-tree", direct},
                                  {"p2p-tree", tree},
                                  {"p2p-tree", tree_in_bits},
                                  {"p2p-tree", asleep}};
enum { WAYS = sizeof ways / sizeof *ways };

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8};
enum { COUNTS = sizeof rank_counts / sizeof *rank_counts };

static void run(const group_kind *kind, int ranks, uint64_t lost, rank_body *body) {
    const char *how = kind->sets ? kind->sets[0] : "";
    ck_assert_msg(ranks_run_losing(ranks, 60, lost, body, (void *)kind) == 0,
                  "%s %s, %d ranks", kind->transport, how, ranks);
}

static void run_all(int ranks, uint64_t lost, rank_body *body) {
    const char *name;

    for (int i = 0; i < WAYS; i++)
        run(&ways[i], ranks, lost, body);
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, name);
        const dlc_transport_ops *ops = feature->ops;
        group_kind kind = {name, NULL};
        if (DLC_CAN(ops, attach) && strcmp(name, ways[0].transport) != 0)
            run(&kind, ranks, lost, body);
    }
    plugins_close();
}

/* ---- An arena -------------------------------------------------------------- */

enum { ROOM = 120000 /* floats */ };

static float *attach(group *g, size_t count, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    RANK_OK(g->rank, g->device_ops->alloc(g->device, count * sizeof(float),
                                          DLC_MEM_SHARED, memory));
    RANK_OK(g->rank, g->ops->attach(g->endpoint, memory));
    return memory->base;
}

/* The endpoint goes first: it may have the memory mapped, or known to an adapter. */
static void finish(group *g, dlc_memory *one, dlc_memory *two) {
    g->ops->close(g->endpoint);
    g->endpoint = NULL;
    g->device_ops->free(g->device, one);
    if (two)
        g->device_ops->free(g->device, two);
    group_close(g);
}

static size_t slice(size_t count, int rank, int ranks) {
    return count * (size_t)rank / (size_t)ranks;
}

/* One collective, `at` has an element before it and one behind that must stay. */
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

static int pairwise(const group *g) {
    const dlc_feature *feature;
    for (size_t i = 0; (feature = plugin_at(DLC_KIND_TRANSPORT, i)) != NULL; i++)
        if (feature->ops == g->ops)
            return (feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    return 0;
}

static void try_all_reduce(group *g, const trial *t) {
    if (!DLC_CAN(g->ops, all_reduce) || !pairwise(g))
        return;
    begin(g, t);
    RANK_OK(g->rank, g->ops->all_reduce(g->endpoint, t->at, t->count));
    RANK_CHECK(g->rank,
               reference_wrong(t->salt, g->rank->ranks, 0, t->count, t->at) == 0);
    end(g, t);
}

static void try_reduce_scatter(group *g, const trial *t) {
    int me = g->rank->rank, ranks = g->rank->ranks;
    if (!DLC_CAN(g->ops, reduce_scatter) || !pairwise(g))
        return;
    begin(g, t);
    RANK_OK(g->rank, g->ops->reduce_scatter(g->endpoint, t->at, t->count));
    RANK_CHECK(g->rank, reference_wrong(t->salt, ranks, slice(t->count, me, ranks),
                                        slice(t->count, me + 1, ranks), t->at) == 0);
    end(g, t);
}

static void try_all_gather(group *g, const trial *t) {
    int ranks = g->rank->ranks;
    if (!DLC_CAN(g->ops, all_gather))
        return;
    begin(g, t);
    RANK_OK(g->rank, g->ops->all_gather(g->endpoint, t->at, t->count));
    for (int r = 0; r < ranks; r++)
        for (size_t i = slice(t->count, r, ranks); i < slice(t->count, r + 1, ranks);
             i++)
            RANK_CHECK(g->rank, t->at[i] == reference_value(t->salt, r, i));
    end(g, t);
}

/* Not of whole elements, and from an odd byte. */
static void try_broadcast(group *g, const trial *t) {
    int root = (int)(t->salt % (uint64_t)g->rank->ranks);
    size_t odd = t->count > 0, bytes = t->count * sizeof(float) - 2 * odd;
    unsigned char *at = (unsigned char *)t->at;
    if (!DLC_CAN(g->ops, broadcast))
        return;
    group_write(at, t->count * sizeof(float), g->rank->rank, 0, t->salt);
    t->at[-1] = 41.0f;
    t->at[t->count] = 42.0f;
    RANK_OK(g->rank, g->ops->broadcast(g->endpoint, root, at + odd, bytes));
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

/* ---- Everywhere in it ------------------------------------------------------ */

static void everywhere_body(test_rank *rank, void *context) {
    static const size_t counts[] = {0, 1,  2,   3,    4,    5,    7,     8,
                                    9, 31, 100, 1023, 1024, 4097, 16384, 16385};
    static const size_t offsets[] = {1, 2, 16, 1031};
    dlc_memory weights, gradients;
    group g;

    group_open(&g, rank, context);
    float *one = attach(&g, 40000, &weights), *two = attach(&g, ROOM, &gradients);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) {
            float *arena = (i + k) % 2 ? one : two;
            trial t = {arena + offsets[k], counts[i], 1000 * i + 10 * k};
            try_all(&g, &t);
        }
    trial t = {two + 1, ROOM - 2, 7};
    try_all(&g, &t);
    finish(&g, &weights, &gradients);
}

START_TEST(everywhere) {
    run_all(rank_counts[_i], 0, everywhere_body);
}
END_TEST

/* The whole of it, to its first and last byte; and one that is too small by one. */
static void edges_body(test_rank *rank, void *context) {
    enum { SMALL = 1000 };
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, SMALL, &memory), *outside = dlc_alloc(SMALL, 4);
    RANK_CHECK(rank, outside);
    for (uint64_t salt = 0; salt < 20 && pairwise(&g); salt++) {
        float *at = salt % 3 ? arena : outside;
        size_t count = salt % 2 ? SMALL : 1;
        at += salt % 2 ? 0 : SMALL - 1;
        reference_fill(salt, rank->rank, count, at);
        RANK_OK(rank, g.ops->all_reduce(g.endpoint, at, count));
        RANK_CHECK(rank, reference_wrong(salt, rank->ranks, 0, count, at) == 0);
    }
    dlc_free(outside);
    finish(&g, &memory, NULL);
}

START_TEST(edges) {
    run_all(3, 0, edges_body);
}
END_TEST

/* In attached memory and elsewhere, with pauses, and a message under way meanwhile. */
static void mixture_body(test_rank *rank, void *context) {
    dlc_random same = dlc_random_make(5, 5), mine = dlc_random_make(5, 10 + rank->rank);
    int me = rank->rank, ranks = rank->ranks;
    int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    unsigned char out[5000], in[5000];
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, ROOM, &memory), *outside = dlc_alloc(ROOM, sizeof(float));
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
    finish(&g, &memory, NULL);
}

START_TEST(mixture) {
    if (rank_counts[_i] > 1)
        run_all(rank_counts[_i], 0, mixture_body);
}
END_TEST

/* Megabytes, again and again, with what the last round left. */
static void large_body(test_rank *rank, void *context) {
    enum { LARGE = 2000003 };
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, LARGE, &memory);
    trial t = {arena + 1, LARGE - 2, 1};
    try_all_reduce(&g, &t);
    if (pairwise(&g)) {
        for (int i = 0; i < 4; i++) {
            memset(arena, 0, LARGE * sizeof *arena);
            arena[1234567] = (float)rank->rank;
            RANK_OK(rank, g.ops->all_reduce(g.endpoint, arena, LARGE));
            float sum = (float)(rank->ranks * (rank->ranks - 1) / 2);
            for (size_t k = 0; k < LARGE; k++)
                RANK_CHECK(rank, arena[k] == (k == 1234567 ? sum : 0.0f));
        }
    }
    finish(&g, &memory, NULL);
}

START_TEST(large) {
    run_all(2, 0, large_body);
    run_all(5, 0, large_body);
}
END_TEST

/* ---- What goes wrong ------------------------------------------------------- */

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder))
        count++;
    (void)closedir(folder);
    return count;
}

/* Ranks that don't agree are all told so, none attaches, and go on with the rest. */
static void disagree_body(test_rank *rank, void *context) {
    dlc_memory odd = {.size = sizeof odd}, plain = {.size = sizeof plain}, good;
    size_t bytes = rank->rank == 1 ? 8192 : 4096;
    uint32_t flags = rank->rank == 1 ? 0 : DLC_MEM_SHARED;
    group g;

    group_open(&g, rank, context);
    int files = open_files();
    RANK_OK(rank, g.device_ops->alloc(g.device, bytes, DLC_MEM_SHARED, &odd));
    RANK_OK(rank, g.device_ops->alloc(g.device, 4096, flags, &plain));
    RANK_CHECK(rank, g.ops->attach(g.endpoint, &odd) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "one size") != NULL);
    RANK_CHECK(rank, g.ops->attach(g.endpoint, &plain) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(),
                            rank->rank == 1 ? "cannot be exported" : "rank 1") != NULL);
    g.device_ops->free(g.device, &odd);
    g.device_ops->free(g.device, &plain);
    RANK_CHECK(rank, open_files() == files);

    float *arena = attach(&g, 1002, &good);
    trial t = {arena + 1, 1000, 3};
    try_all(&g, &t);
    finish(&g, &good, NULL);
}

START_TEST(disagree) {
    for (int i = 0; i < WAYS; i++)
        run(&ways[i], 3, 0, disagree_body);
    plugins_close();
}
END_TEST

/* Not at the same place: found out, where it would else sum apples and pears. */
static void astray_body(test_rank *rank, void *context) {
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, ROOM, &memory);
    size_t offset = rank->rank == 1 ? 10 : 20;
    dlc_status status = g.ops->all_reduce(g.endpoint, arena + offset, 50000);
    RANK_CHECK(rank, status == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "same calls") != NULL);
    finish(&g, &memory, NULL);
}

START_TEST(astray) {
    for (int i = 0; i < WAYS; i++)
        run(&ways[i], 2, 0, astray_body);
    plugins_close();
}
END_TEST

/* Killed in the middle, at any moment. The others' memory of it stays mapped: they
 * leave with an error, and not by a signal. */
static void killed_body(test_rank *rank, void *context) {
    enum { BIG = 1000000 };
    dlc_status status = DLC_OK;
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, BIG, &memory);
    if (rank->rank == 1 && fork() == 0) { /* the parent dies when this says so */
        usleep((unsigned)(getpid() % 40) * 500);
        (void)kill(getppid(), SIGKILL);
        _exit(0);
    }
    while (status == DLC_OK)
        status = DLC_CAN(g.ops, all_reduce) ? g.ops->all_reduce(g.endpoint, arena, BIG)
                                            : DLC_ERR_PEER;
    RANK_CHECK(rank, status == DLC_ERR_PEER);
    for (size_t i = 0; i < BIG; i += 1024)
        arena[i] = 1.0f;
    finish(&g, &memory, NULL);
}

START_TEST(killed) {
    for (int i = 0; i < 8; i++)
        run_all(3, 1u << 1, killed_body);
}
END_TEST

/* ... and before all have mapped it. */
static void killed_attaching_body(test_rank *rank, void *context) {
    dlc_memory memory = {.size = sizeof memory};
    group g;

    group_open(&g, rank, context);
    RANK_OK(rank, g.device_ops->alloc(g.device, 1 << 20, DLC_MEM_SHARED, &memory));
    if (rank->rank == 0)
        (void)raise(SIGKILL);
    RANK_CHECK(rank, g.ops->attach(g.endpoint, &memory) == DLC_ERR_PEER);
    finish(&g, &memory, NULL);
}

START_TEST(killed_attaching) {
    for (int i = 0; i < WAYS; i++)
        run(&ways[i], 3, 1, killed_attaching_body);
    plugins_close();
}
END_TEST

/* Nothing stays mapped or open behind the endpoint. */
static void closed_body(test_rank *rank, void *context) {
    group g;

    group_prepare(&g, rank, context);
    int files = 0;
    for (int round = 0; round < 5; round++) {
        dlc_memory one, two;
        RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
        (void)attach(&g, 100000, &one);
        (void)attach(&g, 1, &two);
        ranks_barrier(rank);
        g.ops->close(g.endpoint);
        g.endpoint = NULL;
        g.device_ops->free(g.device, &one);
        g.device_ops->free(g.device, &two);
        if (round == 0)
            files = open_files(); /* what a library opens once stays */
        RANK_CHECK(rank, open_files() == files);
    }
    group_close(&g);
}

START_TEST(closed) {
    run_all(3, 0, closed_body);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attached memory");
    TCase *tests = tcase_create("attach");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, everywhere, 0, COUNTS);
    tcase_add_test(tests, edges);
    tcase_add_loop_test(tests, mixture, 0, COUNTS);
    tcase_add_test(tests, large);
    tcase_add_test(tests, disagree);
    tcase_add_test(tests, astray);
    tcase_add_test(tests, killed);
    tcase_add_test(tests, killed_attaching);
    tcase_add_test(tests, closed);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
