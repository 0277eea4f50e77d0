/* Schedules that are forced, where they would be a race: the ranks take turns by a
 * barrier that is not the transport's. What comes before anybody asks for it, more than
 * a ring holds, both ways full at once, messages under way when it is closed, and ranks
 * that don't agree on a count. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "group.h"

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

/* Looks at them for a while, and at each that is done no more. */
static void look(group *g, test_rank *rank, traffic *t, int turns) {
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < MESSAGES; i++) {
            int done = 0;
            if (t->request[i])
                RANK_OK(rank, group_test(g, t->request[i], &done));
            if (done)
                t->request[i] = NULL;
        }
}

/* Of the two tags the second first, so nothing is asked for in the order it came in. */
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

/* All is sent, and looked at, before the receiver asks for anything or even looks. */
static void early_body(test_rank *rank, void *context) {
    group g;
    traffic t = {0};
    group_open(&g, rank, context);
    for (int round = 0; round < 3; round++) {
        int from = round % 2, to = 1 - from;
        if (rank->rank == from) {
            send_all(&g, rank, to, &t);
            look(&g, rank, &t, 20);
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

START_TEST(early_messages) {
    run_all(2, early_body);
}
END_TEST

/* Both ways are full before anybody receives; then what comes back has to find room. */
static void full_body(test_rank *rank, void *context) {
    group g;
    traffic out = {0}, in = {0};
    int other = 1 - rank->rank;
    group_open(&g, rank, context);
    for (int round = 0; round < 3; round++) {
        send_all(&g, rank, other, &out);
        look(&g, rank, &out, 20);
        ranks_barrier(rank);
        receive_all(&g, rank, other, &in);
        if (round % 2) { /* sends first, receives first */
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

START_TEST(both_ways_full) {
    run_all(2, full_body);
}
END_TEST

/* A rank that only sends gets on though the others never look while it does. */
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

START_TEST(one_after_the_other) {
    run_all(4, pass_on_body);
}
END_TEST

/* What is under way when an endpoint is closed is given up: nobody hangs, and the next
 * group of the same ranks sees nothing of it. */
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
            look(&g, rank, &left, 5);
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

START_TEST(closed_under_way) {
    run_all(2, close_body);
}
END_TEST

/* The same collective with unlike counts is a mistake of the caller. Each rank gets an
 * error or waits until the job ends, leaves at once then, and nothing is written
 * outside of anybody's buffer. */
typedef dlc_status collective(group *g, float *buffer, size_t count);

static collective *const collectives[] = {group_all_reduce, group_reduce_scatter,
                                          group_all_gather};

enum { CALLS = 16 }; /* on the board: rank i calls */

static void unlike_body(test_rank *rank, void *context) {
    enum { COUNT = 30000, GUARD = 64 };
    static const size_t counts[][2] = {{COUNT, COUNT / 3}, {1, COUNT}, {0, COUNT}};
    group g;
    int which = rank->board[0], shape = rank->board[1];
    float *buffer = dlc_alloc(COUNT + 2 * GUARD, sizeof *buffer);
    RANK_CHECK(rank, buffer);
    size_t count = counts[shape][rank->rank > 0];
    for (size_t i = 0; i < COUNT + 2 * GUARD; i++)
        buffer[i] = 7.0f;
    group_open(&g, rank, context);
    __atomic_store_n(&rank->board[CALLS + rank->rank], 1, __ATOMIC_SEQ_CST);
    (void)collectives[which](&g, buffer + GUARD, count);
    for (size_t i = 0; i < GUARD; i++)
        RANK_CHECK(rank, buffer[i] == 7.0f);
    for (size_t i = GUARD + count; i < COUNT + 2 * GUARD; i++)
        RANK_CHECK(rank, buffer[i] == 7.0f);
    group_close(&g);
    dlc_free(buffer);
}

typedef struct unlike {
    group_kind kind;
    char which, shape;
} unlike;

/* The job ends a moment later, by a rank that is in no group; who still waits then has
 * seconds. */
static void ended_body(test_rank *rank, void *context) {
    const unlike *how = context;
    rank->board[0] = how->which;
    rank->board[1] = how->shape;
    ranks_barrier(rank);
    if (rank->rank == rank->ranks - 1) {
        for (int r = 0; r < rank->rank; r++)
            while (!__atomic_load_n(&rank->board[CALLS + r], __ATOMIC_SEQ_CST))
                usleep(1000);
        usleep(50000);
        ranks_end(rank);
        return;
    }
    test_rank few = *rank;
    few.ranks = rank->ranks - 1;
    unlike_body(&few, (void *)&how->kind);
}

START_TEST(unlike_counts) {
    const char *name;
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        unlike how = {{name, NULL}, (char)(_i % 3), (char)(_i / 3)};
        const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, name)->ops;
        if (!DLC_CAN(ops, all_reduce)) /* the core builds them from messages */
            continue;
        ck_assert_msg(ranks_run(3, 10, ended_body, &how) == 0, "%s, case %d", name, _i);
    }
    plugins_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("transport schedules");
    TCase *tests = tcase_create("schedules");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, early_messages);
    tcase_add_test(tests, both_ways_full);
    tcase_add_test(tests, one_after_the_other);
    tcase_add_test(tests, closed_under_way);
    tcase_add_loop_test(tests, unlike_counts, 0, 9);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
