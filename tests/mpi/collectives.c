/* Collectives of the mpi transport under mpirun: every count, all of the world and a
 * part of it, with messages in flight, with endpoints one after the other and two at
 * once. MPI reduces in an order of its own, so the values are small integers. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "group.h"
#include "support/test.h"

enum { MOST = 300007 };

static const size_t counts[] = {0,    1,     2,     3,     7,      100,
                                1000, 16385, 30000, 65537, 131071, MOST};
enum { COUNTS = sizeof counts / sizeof *counts };

static const group_kind kind = {"mpi", NULL};

static float value_of(int rank, size_t i) {
    return (float)((i * 7 + (size_t)rank * 3) % 64);
}

static float sum_of(int ranks, size_t i) {
    float sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += value_of(r, i);
    return sum;
}

static size_t slice(size_t count, int rank, int ranks) {
    return count * (size_t)rank / (size_t)ranks;
}

static void fill(test_rank *rank, float *buffer, size_t count) {
    for (size_t i = 0; i < count; i++)
        buffer[i] = value_of(rank->rank, i);
    buffer[count] = 42;
}

static void check_all(group *g, float *buffer, size_t count) {
    test_rank *rank = g->rank;
    int me = rank->rank, ranks = rank->ranks, root = (int)(count % (size_t)ranks);

    fill(rank, buffer, count);
    RANK_OK(rank, g->ops->all_reduce(g->endpoint, buffer, count));
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(rank, buffer[i] == sum_of(ranks, i));
    RANK_CHECK(rank, buffer[count] == 42);

    fill(rank, buffer, count);
    RANK_OK(rank, g->ops->reduce_scatter(g->endpoint, buffer, count));
    for (size_t i = slice(count, me, ranks); i < slice(count, me + 1, ranks); i++)
        RANK_CHECK(rank, buffer[i] == sum_of(ranks, i));
    RANK_CHECK(rank, buffer[count] == 42);

    fill(rank, buffer, count);
    RANK_OK(rank, g->ops->all_gather(g->endpoint, buffer, count));
    for (int r = 0; r < ranks; r++)
        for (size_t i = slice(count, r, ranks); i < slice(count, r + 1, ranks); i++)
            RANK_CHECK(rank, buffer[i] == value_of(r, i));
    RANK_CHECK(rank, buffer[count] == 42);

    fill(rank, buffer, count);
    RANK_OK(rank, g->ops->broadcast(g->endpoint, root, buffer, count * sizeof *buffer));
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(rank, buffer[i] == value_of(root, i));
    RANK_CHECK(rank, buffer[count] == 42);
}

static void every_count_body(test_rank *rank, void *context) {
    float *buffer = dlc_alloc(MOST + 1, sizeof *buffer);
    group g;
    (void)context;
    RANK_CHECK(rank, buffer);
    group_open(&g, rank, &kind);
    for (size_t i = 0; i < COUNTS; i++)
        check_all(&g, buffer, counts[i]);
    for (size_t i = COUNTS; i-- > 0;)
        check_all(&g, buffer, counts[i]);
    group_close(&g);
    dlc_free(buffer);
}

/* With the argument "fork" the tests run as a job's rank does, in a child of the
 * process that mpirun has started. */
static int begin(int argc, char **argv) {
    int status = 0;
    if (argc < 2 || strcmp(argv[1], "fork") != 0)
        return TESTS_RUN;
    pid_t child = fork();
    if (child == 0)
        return TESTS_RUN;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

/* All processes, then a part of them; what is impossible is skipped (ranks.c). */
TEST_EACH(every_count, 4) {
    static const int ranks[] = {2, 3, 1, 2};
    ck_assert_int_eq(ranks_run(ranks[_i], 60, every_count_body, NULL), 0);
    plugins_close();
}

static void beside_body(test_rank *rank, void *context) {
    int me = rank->rank, ranks = rank->ranks;
    int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    float *buffer = dlc_alloc(5001, sizeof *buffer);
    unsigned char out[5000], in[5000];
    group one, two;
    (void)context;
    RANK_CHECK(rank, buffer);
    group_open(&one, rank, &kind);
    group_open(&two, rank, &kind);
    for (uint64_t round = 0; round < 30; round++) {
        group *g = round % 2 ? &one : &two, *other = round % 3 ? g : &one;
        dlc_request *send, *recv;
        group_write(out, sizeof out, me, to, round);
        group_send(other, to, UINT64_MAX - round, out, sizeof out, &send);
        check_all(g, buffer, 5000);
        group_recv(other, from, UINT64_MAX - round, in, sizeof in, &recv);
        group_wait(other, recv);
        group_wait(other, send);
        RANK_CHECK(rank, group_is(in, sizeof in, from, me, round));
    }
    group_close(&two);
    group_close(&one);
    dlc_free(buffer);
}

TEST_EACH(messages_beside_and_two_endpoints, 2) {
    ck_assert_int_eq(ranks_run(2 + _i, 60, beside_body, NULL), 0);
    plugins_close();
}

/* More tags than the first hash table has room for, all new, in both directions at
 * once. */
static void many_tags_body(test_rank *rank, void *context) {
    enum { TAGS = 3000 };
    int other = 1 - rank->rank;
    dlc_request **requests = dlc_alloc(2 * TAGS, sizeof(dlc_request *));
    uint64_t *description = dlc_alloc(2 * TAGS, sizeof *description);
    group g;
    (void)context;
    RANK_CHECK(rank, requests && description);
    group_open(&g, rank, &kind);
    for (uint64_t i = 0; i < TAGS; i++) {
        uint64_t tag = i * UINT64_C(0x100000001);
        description[i] = i + (uint64_t)rank->rank * 1000000;
        group_send(&g, other, tag, &description[i], sizeof *description, &requests[i]);
    }
    for (uint64_t i = TAGS; i-- > 0;) {
        uint64_t tag = i * UINT64_C(0x100000001);
        group_recv(&g, other, tag, &description[TAGS + i], sizeof *description,
                   &requests[TAGS + i]);
    }
    for (size_t i = 0; i < 2 * TAGS; i++)
        group_wait(&g, requests[i]);
    for (uint64_t i = 0; i < TAGS; i++)
        RANK_CHECK(rank, description[TAGS + i] == i + (uint64_t)other * 1000000);
    group_close(&g);
    dlc_free(requests);
    dlc_free(description);
}

TEST(many_tags) {
    ck_assert_int_eq(ranks_run(2, 60, many_tags_body, NULL), 0);
    plugins_close();
}

static void description_body(test_rank *rank, void *context) {
    char reason[256] = "", text[256] = "";
    dlc_transport_prediction made = {.size = sizeof made};
    group g;
    (void)context;
    group_open(&g, rank, &kind);
    RANK_OK(rank, g.ops->predict(&g.args, &made, reason, sizeof reason));
    RANK_CHECK(rank, made.bandwidth > 0 && strstr(reason, "processes"));
    RANK_OK(rank, g.ops->describe(g.endpoint, text, sizeof text));
    RANK_CHECK(rank, text[0]);
    g.args.ranks = 1000;
    made = (dlc_transport_prediction){.size = sizeof made};
    RANK_OK(rank, g.ops->predict(&g.args, &made, reason, sizeof reason));
    RANK_CHECK(rank, !(made.bandwidth > 0) && strstr(reason, "not 1000"));
    g.args.ranks = rank->ranks;
    group_close(&g);
}

TEST(description) {
    ck_assert_int_eq(ranks_run(2, 60, description_body, NULL), 0);
    plugins_close();
}
