/* Conformance of transports: interleavings that would otherwise be a race, forced by a
 * barrier that is not the transport's. Messages before their receives are posted, more
 * than a ring holds, both directions full at once, messages in flight at close, and
 * ranks that disagree on a count. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "group.h"
#include "support/test.h"

static void run_all(int ranks, rank_body *body) {
    const char *name;
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        group_kind kind = {name, NULL};
        ck_assert_msg(ranks_run(ranks, 60, body, &kind) == 0, "%s, %d ranks", name,
                      ranks);
    }
    ck_assert_msg(group_transport(0) != NULL, "no transport runs here");
    plugins_close();
}

static unsigned char *room(test_rank *rank, size_t bytes) {
    unsigned char *memory = dlc_alloc(bytes > 0 ? bytes : 1, 1);
    RANK_CHECK(rank, memory);
    return memory;
}

enum { MESSAGES = 40, TAG = 7 };

/* From nothing to more than any ring or eager limit. */
static size_t bytes_of(int i) {
    return i % 8 == 7 ? 300001 : (size_t)(i % 5) * 3001;
}

typedef struct traffic {
    unsigned char *bytes[MESSAGES];
    dlc_request *request[MESSAGES];
} traffic;

static void send_all(group *g, test_rank *rank, int to, traffic *t) {
    for (int i = 0; i < MESSAGES; i++) {
        t->bytes[i] = room(rank, bytes_of(i));
        group_write(t->bytes[i], bytes_of(i), rank->rank, to, (uint64_t)i);
        group_send(g, to, (dlc_tag)(TAG + i % 2), t->bytes[i], bytes_of(i),
                   &t->request[i]);
    }
}

/* Tests the requests for a while; each that is done is not tested again. */
static void poll_requests(group *g, test_rank *rank, traffic *t, int turns) {
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < MESSAGES; i++) {
            int done = 0;
            if (t->request[i])
                RANK_OK(rank, group_test(g, t->request[i], &done));
            if (done)
                t->request[i] = NULL;
        }
}

/* The second of the two tags first, so receives are in another order than the sends. */
static void receive_all(group *g, test_rank *rank, int from, traffic *t) {
    for (int pass = 1; pass >= 0; pass--)
        for (int i = 0; i < MESSAGES; i++)
            if (i % 2 == pass) {
                t->bytes[i] = room(rank, bytes_of(i) + 1);
                t->bytes[i][bytes_of(i)] = 0x77;
                group_recv(g, from, (dlc_tag)(TAG + i % 2), t->bytes[i], bytes_of(i),
                           &t->request[i]);
            }
}

static void finish(group *g, traffic *t) {
    for (int i = 0; i < MESSAGES; i++)
        if (t->request[i])
            group_wait(g, t->request[i]);
}

static void check_received(test_rank *rank, int from, const traffic *t) {
    for (int i = 0; i < MESSAGES; i++) {
        RANK_CHECK(rank,
                   group_is(t->bytes[i], bytes_of(i), from, rank->rank, (uint64_t)i));
        RANK_CHECK(rank, t->bytes[i][bytes_of(i)] == 0x77);
    }
}

static void free_all(traffic *t) {
    for (int i = 0; i < MESSAGES; i++)
        dlc_free(t->bytes[i]);
    *t = (traffic){0};
}

/* Everything is sent, and tested, before the receiver posts anything or even polls. */
static void early_body(test_rank *rank, void *context) {
    group g;
    traffic t = {0};
    group_open(&g, rank, context);
    for (int round = 0; round < 3; round++) {
        int from = round % 2, to = 1 - from;
        if (rank->rank == from) {
            send_all(&g, rank, to, &t);
            poll_requests(&g, rank, &t, 20);
        }
        ranks_barrier(rank);
        if (rank->rank == to)
            receive_all(&g, rank, from, &t);
        finish(&g, &t);
        if (rank->rank == to)
            check_received(rank, from, &t);
        ranks_barrier(rank);
        free_all(&t);
    }
    group_close(&g);
}

TEST_SETTINGS(.timeout = 120);

TEST(early_messages) {
    run_all(2, early_body);
}

/* Both directions are full before anybody receives; then the replies must find room. */
static void full_body(test_rank *rank, void *context) {
    group g;
    traffic out = {0}, in = {0};
    int other = 1 - rank->rank;
    group_open(&g, rank, context);
    for (int round = 0; round < 3; round++) {
        send_all(&g, rank, other, &out);
        poll_requests(&g, rank, &out, 20);
        ranks_barrier(rank);
        receive_all(&g, rank, other, &in);
        if (round % 2) { /* sends first, or receives first */
            finish(&g, &out);
            finish(&g, &in);
        } else {
            finish(&g, &in);
            finish(&g, &out);
        }
        check_received(rank, other, &in);
        free_all(&out);
        free_all(&in);
    }
    ranks_barrier(rank);
    group_close(&g);
}

TEST(both_ways_full) {
    run_all(2, full_body);
}

/* A rank that only sends makes progress though the others never poll meanwhile. */
static void pass_on_body(test_rank *rank, void *context) {
    group g;
    traffic t = {0};
    int me = rank->rank, last = rank->ranks - 1;
    group_open(&g, rank, context);
    for (int r = 0; r < last; r++) { /* one hop after the other */
        if (me == r) {
            send_all(&g, rank, r + 1, &t);
            finish(&g, &t);
        } else if (me == r + 1) {
            receive_all(&g, rank, r, &t);
            finish(&g, &t);
            check_received(rank, r, &t);
        }
        free_all(&t);
        ranks_barrier(rank);
    }
    group_close(&g);
}

TEST(one_after_the_other) {
    run_all(4, pass_on_body);
}

/* What is in flight when an endpoint is closed is cancelled: nobody hangs, and the next
 * group of the same ranks is not affected. */
static void close_body(test_rank *rank, void *context) {
    group g;
    traffic left = {0}, t = {0};
    int other = 1 - rank->rank;
    for (int round = 0; round < 4; round++) {
        group_open(&g, rank, context);
        if (round % 2 == 0 || rank->rank == 0)
            send_all(&g, rank, other, &left);
        else
            receive_all(&g, rank, other, &left);
        if (round > 1)
            poll_requests(&g, rank, &left, 5);
        ranks_barrier(rank);
        uint64_t start = dlc_now_ns();
        group_close(&g);
        RANK_CHECK(rank, dlc_since(start) < 10);
        free_all(&left);
        ranks_barrier(rank);
        group_open(&g, rank, context);
        if (rank->rank == 0)
            send_all(&g, rank, 1, &t);
        else
            receive_all(&g, rank, 0, &t);
        finish(&g, &t);
        if (rank->rank == 1)
            check_received(rank, 0, &t);
        free_all(&t);
        ranks_barrier(rank);
        group_close(&g);
    }
}

TEST(closed_in_flight) {
    run_all(2, close_body);
}

/* Different counts in one collective are a mistake of the caller. Each rank gets an
 * error or waits until the job ends, then leaves at once; nothing is written outside of
 * any buffer. */
typedef dlc_status collective(group *g, float *buffer, size_t count);

static collective *const collectives[] = {group_all_reduce, group_reduce_scatter,
                                          group_all_gather};

enum { CALLS = 16 }; /* on the board: rank i calls */

static void different_counts_body(test_rank *rank, void *context) {
    enum { COUNT = 30000, GUARD = 64 };
    static const size_t counts[][2] = {{COUNT, COUNT / 3}, {1, COUNT}, {0, COUNT}};
    group g;
    int which = rank->shared[0], shape = rank->shared[1];
    float *buffer = dlc_alloc(COUNT + 2 * GUARD, sizeof *buffer);
    RANK_CHECK(rank, buffer);
    size_t count = counts[shape][rank->rank > 0];
    for (size_t i = 0; i < COUNT + 2 * GUARD; i++)
        buffer[i] = 7.0f;
    group_open(&g, rank, context);
    __atomic_store_n(&rank->shared[CALLS + rank->rank], 1, __ATOMIC_SEQ_CST);
    (void)collectives[which](&g, buffer + GUARD, count);
    for (size_t i = 0; i < GUARD; i++)
        RANK_CHECK(rank, buffer[i] == 7.0f);
    for (size_t i = GUARD + count; i < COUNT + 2 * GUARD; i++)
        RANK_CHECK(rank, buffer[i] == 7.0f);
    group_close(&g);
    dlc_free(buffer);
}

typedef struct different_counts {
    group_kind kind;
    char which, shape;
} different_counts;

/* The job ends a moment later, by a rank that is in no group; ranks that still wait
 * have seconds to leave. */
static void ended_body(test_rank *rank, void *context) {
    const different_counts *how = context;
    rank->shared[0] = how->which;
    rank->shared[1] = how->shape;
    ranks_barrier(rank);
    if (rank->rank == rank->ranks - 1) {
        for (int r = 0; r < rank->rank; r++)
            while (!__atomic_load_n(&rank->shared[CALLS + r], __ATOMIC_SEQ_CST))
                usleep(1000);
        usleep(50000);
        ranks_end(rank);
        return;
    }
    test_rank few = *rank;
    few.ranks = rank->ranks - 1;
    different_counts_body(&few, (void *)&how->kind);
}

TEST_EACH(different_counts_in_a_collective, 9) {
    const char *name;
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        different_counts how = {{name, NULL}, (char)(_i % 3), (char)(_i / 3)};
        const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, name)->ops;
        if (!DLC_CAN(ops, all_reduce)) /* the core builds it from messages */
            continue;
        ck_assert_msg(ranks_run(3, 10, ended_body, &how) == 0, "%s, case %d", name, _i);
    }
    plugins_close();
}
