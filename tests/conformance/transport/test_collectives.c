/* Conformance of transports: collectives with every count and number of ranks, bitwise
 * in the SDK's order of reduction where the transport claims it, and with messages in
 * flight. */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "group.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/test.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 8};
enum { COUNTS = sizeof rank_counts / sizeof *rank_counts };

static const size_t counts[] = {0,     1,     2,     3,     5,      7,     8,
                                9,     100,   1000,  4096,  8191,   8193,  16384,
                                16385, 30000, 65536, 65537, 131071, 300007};
enum { SIZES = sizeof counts / sizeof *counts, MOST = 300007 };

static void run_all(int ranks, rank_body *body, const char *const *sets) {
    const char *name;
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, name);
        if (!(feature->caps & DLC_TRANSPORT_PAIRWISE))
            continue;
        group_kind kind = {name, sets};
        ck_assert_msg(ranks_run(ranks, 60, body, &kind) == 0, "%s, %d ranks", name,
                      ranks);
    }
    plugins_close();
}

static size_t slice(size_t count, int rank, int ranks) {
    return count * (size_t)rank / (size_t)ranks;
}

static void check_all_reduce(group *g, float *buffer, size_t count, uint64_t salt) {
    test_rank *rank = g->rank;
    if (!DLC_CAN(g->ops, all_reduce))
        return;
    reference_fill(salt, rank->rank, count, buffer);
    buffer[count] = 42.0f;
    RANK_OK(rank, group_all_reduce(g, buffer, count));
    RANK_CHECK(rank, reference_wrong(salt, rank->ranks, 0, count, buffer) == 0);
    RANK_CHECK(rank, buffer[count] == 42.0f);
}

static void check_reduce_scatter(group *g, float *buffer, size_t count, uint64_t salt) {
    test_rank *rank = g->rank;
    size_t begin = slice(count, rank->rank, rank->ranks);
    size_t end = slice(count, rank->rank + 1, rank->ranks);
    if (!DLC_CAN(g->ops, reduce_scatter))
        return;
    reference_fill(salt, rank->rank, count, buffer);
    buffer[count] = 42.0f;
    RANK_OK(rank, group_reduce_scatter(g, buffer, count));
    RANK_CHECK(rank, reference_wrong(salt, rank->ranks, begin, end, buffer) == 0);
    RANK_CHECK(rank, buffer[count] == 42.0f);
}

static void check_all_gather(group *g, float *buffer, size_t count, uint64_t salt) {
    test_rank *rank = g->rank;
    if (!DLC_CAN(g->ops, all_gather))
        return;
    reference_fill(salt, rank->rank, count, buffer);
    buffer[count] = 42.0f;
    RANK_OK(rank, group_all_gather(g, buffer, count));
    for (int r = 0; r < rank->ranks; r++)
        for (size_t i = slice(count, r, rank->ranks);
             i < slice(count, r + 1, rank->ranks); i++)
            RANK_CHECK(rank, buffer[i] == reference_value(salt, r, i));
    RANK_CHECK(rank, buffer[count] == 42.0f);
}

static void check_broadcast(group *g, float *buffer, size_t count, uint64_t salt) {
    test_rank *rank = g->rank;
    int root = (int)(salt % (uint64_t)rank->ranks);
    if (!DLC_CAN(g->ops, broadcast))
        return;
    reference_fill(salt, rank->rank, count, buffer);
    RANK_OK(rank, group_broadcast(g, root, buffer, count * sizeof *buffer));
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(rank, buffer[i] == reference_value(salt, root, i));
}

static void every_count_body(test_rank *rank, void *context) {
    group g;
    float *buffer = dlc_alloc(MOST + 1, sizeof *buffer);

    RANK_CHECK(rank, buffer);
    group_open(&g, rank, context);
    for (size_t i = 0; i < SIZES; i++) {
        check_all_reduce(&g, buffer, counts[i], i);
        check_reduce_scatter(&g, buffer, counts[i], 100 + i);
        check_all_gather(&g, buffer, counts[i], 200 + i);
        check_broadcast(&g, buffer, counts[i], 300 + i);
    }
    group_close(&g);
    dlc_free(buffer);
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(every_count, COUNTS) {
    if (rank_counts[_i] <= group_most_ranks())
        run_all(rank_counts[_i], every_count_body, NULL);
}

/* Calls of every kind and size in a row, with pauses; a message is sent before each
 * call and waited for after it. */
static void mixture_body(test_rank *rank, void *context) {
    group g;
    int me = rank->rank, ranks = rank->ranks;
    dlc_random same = dlc_random_make(3, 3), mine = dlc_random_make(3, 10 + me);
    float *buffer = dlc_alloc(MOST + 1, sizeof *buffer);
    unsigned char out[5000], in[5000];

    RANK_CHECK(rank, buffer);
    group_open(&g, rank, context);
    for (uint64_t round = 0; round < 60; round++) {
        size_t count = (size_t)dlc_random_below(&same, round % 4 ? 3000 : 60000);
        dlc_request *send, *recv;
        int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
        if (dlc_random_below(&mine, 4) == 0)
            usleep((unsigned)dlc_random_below(&mine, 1000));
        group_write(out, sizeof out, me, to, round);
        group_send(&g, to, round, out, sizeof out, &send);
        if (round % 2)
            group_recv(&g, from, round, in, sizeof in, &recv);
        switch (dlc_random_below(&same, 4)) {
        case 0:
            check_reduce_scatter(&g, buffer, count, round);
            break;
        case 1:
            check_all_gather(&g, buffer, count, round);
            break;
        default:
            check_all_reduce(&g, buffer, count, round);
        }
        if (round % 2 == 0)
            group_recv(&g, from, round, in, sizeof in, &recv);
        group_wait(&g, recv);
        group_wait(&g, send);
        RANK_CHECK(rank, group_is(in, sizeof in, from, me, round));
    }
    group_close(&g);
    dlc_free(buffer);
}

TEST_EACH(mixture, COUNTS) {
    if (rank_counts[_i] > 1 && rank_counts[_i] <= group_most_ranks())
        run_all(rank_counts[_i], mixture_body, NULL);
}

/* So large that it goes through every ring many times. */
static void large_body(test_rank *rank, void *context) {
    enum { LARGE = SANITIZED ? 1000001 : 3000001 };
    float *buffer = dlc_alloc(LARGE + 1, sizeof *buffer);
    group g;

    RANK_CHECK(rank, buffer);
    group_open(&g, rank, context);
    check_all_reduce(&g, buffer, LARGE, 1);
    check_all_gather(&g, buffer, LARGE, 2);
    check_reduce_scatter(&g, buffer, LARGE, 3);
    group_close(&g);
    dlc_free(buffer);
}

TEST(large) {
    run_all(2, large_body, NULL);
}

/* The shared-memory transport with rings so small that they wrap all the time. */
TEST(small_rings) {
    static const char *const sets[] = {"slots=1", "slot_bytes=64", "chunk_bytes=64",
                                       NULL};
    static const char *const never[] = {"slots=3", "slot_bytes=1000", "spin_us=0",
                                        NULL};
    group_kind kind = {"host-staged", sets};
    ck_assert_int_eq(ranks_run(3, 60, mixture_body, &kind), 0);
    kind.sets = never;
    ck_assert_int_eq(ranks_run(4, 60, mixture_body, &kind), 0);
}
