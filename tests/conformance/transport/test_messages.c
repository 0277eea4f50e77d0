/* Conformance of transports: messages of any size, any order of tags, any number, in
 * all directions at once. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "group.h"
#include "support/test.h"

static const int rank_counts[] = {2, 3, 4, 5, 8};
enum { COUNTS = sizeof rank_counts / sizeof *rank_counts };

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

static void *room(test_rank *rank, size_t bytes) {
    void *memory = dlc_alloc(bytes > 0 ? bytes : 1, 1);
    RANK_CHECK(rank, memory);
    return memory;
}

/* Every rank sends each size to the next one. */
static void sizes_body(test_rank *rank, void *context) {
    static const size_t sizes[] = {0,      1,      3,       63,     64,    65,
                                   4095,   4096,   32767,   32768,  32769, 65537,
                                   262144, 262145, 1000003, 9000001};
    group g;
    int to = (rank->rank + 1) % rank->ranks;
    int from = (rank->rank + rank->ranks - 1) % rank->ranks;

    group_open(&g, rank, context);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        unsigned char *out = room(rank, n), *in = room(rank, n + 2);
        dlc_request *send, *recv;
        in[n] = 0x77;
        group_write(out, n, rank->rank, to, i);
        group_recv(&g, from, 5, in, n, &recv);
        group_send(&g, to, 5, out, n, &send);
        group_wait(&g, recv);
        group_wait(&g, send);
        RANK_CHECK(rank, group_is(in, n, from, rank->rank, i) && in[n] == 0x77);
        dlc_free(out);
        dlc_free(in);
    }
    group_close(&g);
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(sizes, COUNTS) {
    if (rank_counts[_i] <= group_most_ranks())
        run_all(rank_counts[_i], sizes_body);
}

static void huge_body(test_rank *rank, void *context) {
    const size_t huge = (size_t)(group_has_device_memory() ? 8 : 64) << 20;
    group g;
    dlc_request *send, *recv;
    int other = 1 - rank->rank;
    unsigned char *out = room(rank, huge), *in = room(rank, huge);

    group_open(&g, rank, context);
    group_write(out, huge, rank->rank, other, 1);
    group_send(&g, other, 9, out, huge, &send);
    group_recv(&g, other, 9, in, huge, &recv);
    group_wait(&g, send);
    group_wait(&g, recv);
    RANK_CHECK(rank, group_is(in, huge, other, rank->rank, 1));
    group_close(&g);
    dlc_free(out);
    dlc_free(in);
}

TEST(huge_both_ways) {
    run_all(2, huge_body);
}

/* Receives that are posted before the first message of their tag is sent: those of one
 * tag take its messages in order, and those of other tags go on waiting. Rank 1 says
 * when the receives are posted. */
static void early_receives_body(test_rank *rank, void *context) {
    static const dlc_tag tags[] = {11, 12, 11, 12, 13, 12};
    enum { ALL = sizeof tags / sizeof *tags, BYTES = 1000 };
    unsigned char buffer[ALL][BYTES];
    dlc_request *request[ALL], *posted;
    const int parts[] = {0, 4, ALL}; /* posted at first, and after these of one tag */
    group g;

    group_open(&g, rank, context);
    for (int part = 0; part < 2; part++) {
        if (rank->rank == 0)
            group_recv(&g, 1, 10, NULL, 0, &posted);
        for (int i = parts[part]; i < parts[part + 1] && rank->rank == 1; i++)
            group_recv(&g, 0, tags[i], buffer[i], BYTES, &request[i]);
        if (rank->rank == 1)
            group_send(&g, 0, 10, NULL, 0, &posted);
        group_wait(&g, posted);
        for (int i = 0; i < ALL; i++) {
            if ((tags[i] == 11) != (part == 0))
                continue;
            if (rank->rank == 0) {
                group_write(buffer[i], BYTES, 0, 1, (uint64_t)i);
                group_send(&g, 1, tags[i], buffer[i], BYTES, &request[i]);
            }
            group_wait(&g, request[i]);
            RANK_CHECK(rank, group_is(buffer[i], BYTES, 0, 1, (uint64_t)i));
        }
    }
    group_close(&g);
}

TEST(early_receives) {
    run_all(2, early_receives_body);
}

/* Every rank sends MANY messages with many tags to every other, and receives those of
 * the others in an order of its own, with pauses; some tags are used twice. */
enum { MANY = 120 };

static size_t size_of(int from, int to, int k) {
    size_t size = ((size_t)from * 7919 + (size_t)to * 104729 + (size_t)k * 15485863);
    return k % 9 == 0 ? size % 150001 : size % 3001;
}

/* Message k has tag k / 2: two of each, in order. */
static void order_of(dlc_random *random, int *order) {
    for (int i = 0; i < MANY; i++)
        order[i] = i;
    for (int i = MANY - 1; i > 0; i--) {
        int k = (int)dlc_random_below(random, (uint64_t)i + 1), old = order[i];
        order[i] = order[k];
        order[k] = old;
    }
    for (int i = 0; i < MANY; i++) /* the second of a tag not before the first */
        for (int k = i + 1; k < MANY; k++)
            if (order[i] / 2 == order[k] / 2 && order[i] > order[k]) {
                int old = order[i];
                order[i] = order[k];
                order[k] = old;
            }
}

typedef struct message {
    unsigned char *buffer;
    size_t bytes;
    dlc_request *request;
} message;

static void pause_now_and_then(dlc_random *random) {
    if (dlc_random_below(random, 16) == 0)
        usleep((unsigned)dlc_random_below(random, 400));
}

static void tags_body(test_rank *rank, void *context) {
    group g;
    int me = rank->rank, ranks = rank->ranks;
    dlc_random random = dlc_random_make(7, (uint64_t)me);
    message(*out)[MANY] = room(rank, (size_t)ranks * sizeof *out);
    message(*in)[MANY] = room(rank, (size_t)ranks * sizeof *in);
    int order[MANY];

    group_open(&g, rank, context);
    for (int k = 0; k < MANY; k++)
        for (int r = 0; r < ranks; r++) {
            message *m = &out[r][k];
            if (r == me)
                continue;
            m->bytes = size_of(me, r, k);
            m->buffer = room(rank, m->bytes);
            group_write(m->buffer, m->bytes, me, r, (uint64_t)k);
            group_send(&g, r, (dlc_tag)k / 2, m->buffer, m->bytes, &m->request);
            pause_now_and_then(&random);
        }
    for (int r = 0; r < ranks; r++) {
        if (r == me)
            continue;
        order_of(&random, order);
        for (int i = 0; i < MANY; i++) {
            message *m = &in[r][order[i]];
            m->bytes = size_of(r, me, order[i]);
            m->buffer = room(rank, m->bytes);
            group_recv(&g, r, (dlc_tag)order[i] / 2, m->buffer, m->bytes, &m->request);
            pause_now_and_then(&random);
            if (i % 3 != 0)
                continue;
            group_wait(&g, m->request);
            m->request = NULL;
        }
    }
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < MANY && r != me; k++) {
            if (in[r][k].request)
                group_wait(&g, in[r][k].request);
            group_wait(&g, out[r][k].request);
            RANK_CHECK(rank,
                       group_is(in[r][k].buffer, in[r][k].bytes, r, me, (uint64_t)k));
            dlc_free(in[r][k].buffer);
            dlc_free(out[r][k].buffer);
        }
    group_close(&g);
    dlc_free(out);
    dlc_free(in);
}

TEST_EACH(tags_in_any_order, COUNTS) {
    if (rank_counts[_i] <= group_most_ranks())
        run_all(rank_counts[_i], tags_body);
}

/* Many unexpected messages precede the expected one; and a receive is posted while its
 * message arrives. */
static void overtaking_body(test_rank *rank, void *context) {
    enum { BIG = 3 << 20, SMALL = 100 };
    group g;
    dlc_request *big, *small;
    unsigned char *one = room(rank, BIG), *two = room(rank, SMALL);

    group_open(&g, rank, context);
    for (int round = 0; round < 5; round++) {
        if (rank->rank == 0) {
            group_write(one, BIG, 0, 1, 1);
            group_write(two, SMALL, 0, 1, 2);
            group_send(&g, 1, 1, one, BIG, &big);
            group_send(&g, 1, 2, two, SMALL, &small);
            group_wait(&g, small);
            group_wait(&g, big);
        } else if (rank->rank == 1) {
            int done = 0;
            memset(one, 0, BIG);
            group_recv(&g, 0, 2, two, SMALL, &small);
            for (int i = 0; i < round; i++) { /* a part of the large one arrives */
                RANK_OK(rank, group_test(&g, small, &done));
                if (done)
                    break;
            }
            group_recv(&g, 0, 1, one, BIG, &big);
            if (!done)
                group_wait(&g, small);
            group_wait(&g, big);
            RANK_CHECK(rank, group_is(one, BIG, 0, 1, 1));
            RANK_CHECK(rank, group_is(two, SMALL, 0, 1, 2));
        }
    }
    group_close(&g);
    dlc_free(one);
    dlc_free(two);
}

TEST(overtaking) {
    run_all(2, overtaking_body);
}

/* All to all, large, everything posted before anything is waited for, and waited for in
 * the worst order. */
static void flood_body(test_rank *rank, void *context) {
    enum { BYTES = 700001 };
    group g;
    int me = rank->rank, ranks = rank->ranks;
    message *out = room(rank, (size_t)ranks * sizeof *out);
    message *in = room(rank, (size_t)ranks * sizeof *in);

    group_open(&g, rank, context);
    for (int round = 0; round < 3; round++) {
        for (int r = 0; r < ranks; r++) {
            if (r == me)
                continue;
            out[r].buffer = room(rank, BYTES);
            in[r].buffer = room(rank, BYTES);
            group_write(out[r].buffer, BYTES, me, r, (uint64_t)round);
            group_send(&g, r, 3, out[r].buffer, BYTES, &out[r].request);
            group_recv(&g, r, 3, in[r].buffer, BYTES, &in[r].request);
        }
        for (int i = ranks - 1; i >= 0; i--) {
            int r = (i + me) % ranks;
            if (r == me)
                continue;
            group_wait(&g, out[r].request);
            group_wait(&g, in[r].request);
            RANK_CHECK(rank, group_is(in[r].buffer, BYTES, r, me, (uint64_t)round));
            dlc_free(out[r].buffer);
            dlc_free(in[r].buffer);
        }
    }
    group_close(&g);
    dlc_free(out);
    dlc_free(in);
}

TEST_EACH(flood, COUNTS) {
    if (rank_counts[_i] <= group_most_ranks())
        run_all(rank_counts[_i], flood_body);
}

/* Completes requests by test alone; a receive must not be done before its message was
 * sent. */
static void polling_body(test_rank *rank, void *context) {
    group g;
    dlc_request *request = NULL;
    char word[8] = "";
    int done = 0;

    group_open(&g, rank, context);
    if (rank->rank == 1) {
        group_recv(&g, 0, 4, word, 8, &request);
        for (int i = 0; i < 50; i++) {
            RANK_OK(rank, group_test(&g, request, &done));
            RANK_CHECK(rank, !done);
        }
    }
    ranks_barrier(rank);
    if (rank->rank == 0)
        group_send(&g, 1, 4, "message", 8, &request);
    while (rank->rank < 2 && !done) {
        RANK_OK(rank, group_test(&g, request, &done));
        RANK_OK(rank, ranks_check(rank));
    }
    RANK_CHECK(rank, rank->rank != 1 || strcmp(word, "message") == 0);
    group_close(&g);
}

TEST(polling) {
    run_all(3, polling_body);
}

/* ---- wait_any ------------------------------------------------------------------- */

static int32_t any_of(group *g, dlc_request *const *requests, int32_t count,
                      double seconds, double *waited) {
    int32_t which = -2;
    uint64_t since = dlc_now_ns();
    RANK_OK(g->rank, g->ops->wait_any(g->endpoint, requests, count, seconds, &which));
    *waited = dlc_since(since);
    return which;
}

static void *wakeup_thread(void *context) {
    group *g = context;
    usleep(30000);
    g->ops->wakeup(g->endpoint);
    return NULL;
}

/* Nothing is sent yet. */
static void wait_for_nothing(group *g, dlc_request *const *requests) {
    pthread_t thread;
    double waited;
    RANK_CHECK(g->rank, any_of(g, requests, 3, 0.05, &waited) == -1 && waited > 0.045);
    RANK_CHECK(g->rank, any_of(g, requests, 0, 0, &waited) == -1);
    RANK_CHECK(g->rank, !pthread_create(&thread, NULL, wakeup_thread, g));
    RANK_CHECK(g->rank, any_of(g, requests, 3, 20, &waited) == -1 && waited < 10);
    RANK_CHECK(g->rank, !pthread_join(thread, NULL));
    g->ops->wakeup(g->endpoint);
    RANK_CHECK(g->rank, any_of(g, requests, 3, 20, &waited) == -1 && waited < 10);
    RANK_CHECK(g->rank, any_of(g, requests, 3, 0.03, &waited) == -1 && waited > 0.025);
}

static void any_body(test_rank *rank, void *context) {
    group g;
    char words[3][8] = {"", "", ""};
    dlc_request *requests[3] = {NULL, NULL, NULL};
    double waited;

    group_open(&g, rank, context);
    int able = DLC_CAN(g.ops, wait_any) && !g.device_memory;
    for (int32_t r = 1; able && rank->rank == 0 && r < 3; r++)
        RANK_OK(rank, g.ops->recv(g.endpoint, r, 4, words[r], 8, &requests[r]));
    if (able && rank->rank == 0)
        wait_for_nothing(&g, requests);
    ranks_barrier(rank);
    for (int left = 2; able && rank->rank == 0 && left > 0; left--) {
        int32_t which = any_of(&g, requests, 3, 20, &waited);
        RANK_CHECK(rank, which > 0 && !strcmp(words[which], "message"));
        requests[which] = NULL;
    }
    if (able && rank->rank > 0) {
        usleep(20000U * (unsigned)rank->rank);
        group_send(&g, 0, 4, "message", 8, &requests[0]);
        group_wait(&g, requests[0]);
    }
    group_close(&g);
}

TEST(any_of_several) {
    run_all(3, any_body);
}
