/* Tests P2P channels (core/comm/p2p_channel.c): every message arrives complete and
 * once, from any number of peers, with pauses and while collectives run; no call hangs.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/p2p_channel.h"
#include "config/config.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/reference.h"
#include "support/test.h"

enum {
    MOST_RANKS = 4,
    MESSAGES = 150,
    TAGS = 3,
    MOST_BYTES = 200000,
    ALL_REDUCES = 60,
    COUNT = 5000
};

typedef struct fixture {
    test_rank *rank;
    dlc_settings *settings;
    dlc_comm_args args;
    dlc_rank_info rank_info[MOST_RANKS];
    dlc_p2p *p2p;
    const dlc_p2p_channel *channel;
} fixture;

static void fixture_prepare(fixture *b, test_rank *rank) {
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    *b = (fixture){.rank = rank, .settings = plugin_settings(feature, NULL)};
    for (int r = 0; r < rank->ranks; r++)
        b->rank_info[r] = (dlc_rank_info){.size = sizeof *b->rank_info};
    b->args = (dlc_comm_args){.level = {{feature, b->settings, DLC_DOMAIN_JOB}},
                              .levels = 1,
                              .rank = rank->rank,
                              .ranks = rank->ranks,
                              .rank_info = b->rank_info,
                              .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                              .device = {.size = sizeof b->args.device, .threads = 1},
                              .job = rank,
                              .oob_all_gather = ranks_all_gather,
                              .check = ranks_check};
}

static void fixture_open(fixture *b, test_rank *rank) {
    fixture_prepare(b, rank);
    RANK_OK(rank, dlc_p2p_open(&b->args, &b->p2p));
    b->channel = dlc_p2p_table(b->p2p);
    RANK_CHECK(rank,
               b->channel->rank == rank->rank && b->channel->ranks == rank->ranks);
    RANK_CHECK(rank, b->channel->node[0] == b->channel->node[rank->ranks - 1]);
}

static void fixture_close(fixture *b) {
    dlc_p2p_close(b->p2p);
    dlc_settings_free(b->settings);
    plugins_close();
}

/* ---- Many messages ----------------------------------------------------------- */

/* The i-th message from one rank to another: its tag, length and contents. */
typedef struct message {
    dlc_tag tag;
    size_t bytes;
    unsigned char fill;
} message;

static message message_of(int from, int to, int i) {
    int stream = (from * MOST_RANKS + to) * MESSAGES + i;
    dlc_random random = dlc_random_make(7, (uint64_t)stream);
    message made = {.tag = 100 + (uint64_t)(i % TAGS)};
    made.bytes = dlc_random_below(&random, 10) == 0
                     ? dlc_random_below(&random, MOST_BYTES)
                     : dlc_random_below(&random, 300);
    made.fill = (unsigned char)dlc_random_u32(&random);
    return made;
}

/* One message to and from each peer is in flight; slot 2r sends to r, 2r + 1 receives.
 */
typedef struct traffic {
    fixture *b;
    dlc_request *request[2 * MOST_RANKS];
    unsigned char *bytes[2 * MOST_RANKS];
    int count[2 * MOST_RANKS]; /* started */
    int in_flight;
} traffic;

static void begin_next(traffic *t, int32_t slot) {
    test_rank *rank = t->b->rank;
    const dlc_p2p_channel *channel = t->b->channel;
    int peer = slot / 2, i = t->count[slot]++;

    t->request[slot] = NULL;
    if (i == MESSAGES)
        return;
    t->in_flight++;
    message it = slot % 2 ? message_of(peer, rank->rank, i)
                          : message_of(rank->rank, peer, i);
    if (slot % 2) {
        memset(t->bytes[slot], ~it.fill, it.bytes + 1);
        RANK_OK(rank, channel->recv(channel->context, peer, it.tag, t->bytes[slot],
                                    it.bytes, &t->request[slot]));
        return;
    }
    memset(t->bytes[slot], it.fill, it.bytes);
    RANK_OK(rank, channel->send(channel->context, peer, it.tag, t->bytes[slot],
                                it.bytes, &t->request[slot]));
}

static void check_received(const traffic *t, int32_t slot) {
    message it = message_of(slot / 2, t->b->rank->rank, t->count[slot] - 1);
    for (size_t i = 0; i < it.bytes; i++)
        RANK_CHECK(t->b->rank, t->bytes[slot][i] == it.fill);
    RANK_CHECK(t->b->rank, t->bytes[slot][it.bytes] == (unsigned char)~it.fill);
}

static void pass_messages(fixture *b, uint64_t seed) {
    test_rank *rank = b->rank;
    dlc_random random = dlc_random_make(seed, (uint64_t)rank->rank);
    int32_t slots = 2 * rank->ranks;
    traffic t = {.b = b};

    for (int32_t s = 0; s < slots; s++) {
        t.bytes[s] = dlc_alloc(MOST_BYTES + 1, 1);
        RANK_CHECK(rank, t.bytes[s]);
        if (s / 2 != rank->rank)
            begin_next(&t, s);
    }
    while (t.in_flight > 0) {
        int32_t which = -2;
        RANK_OK(rank, b->channel->wait_any(b->channel->context, t.request, slots, 1.0,
                                           &which));
        RANK_CHECK(rank, which >= -1 && which < slots);
        if (which < 0)
            continue;
        t.in_flight--;
        if (which % 2)
            check_received(&t, which);
        if (dlc_random_below(&random, 8) == 0)
            usleep((useconds_t)dlc_random_below(&random, 3000));
        begin_next(&t, which);
    }
    for (int32_t s = 0; s < slots; s++)
        dlc_free(t.bytes[s]);
}

static void *message_thread(void *context) {
    pass_messages(context, 1);
    return NULL;
}

/* One thread sends messages while another runs all-reduces over a communicator. */
static void with_collectives_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    dlc_comm *comm = NULL;
    pthread_t thread;
    float *buffer = dlc_alloc(COUNT, sizeof *buffer);
    fixture_open(&b, rank);
    RANK_CHECK(rank, buffer);
    RANK_OK(rank, dlc_comm_open(&b.args, &comm));
    RANK_CHECK(rank, pthread_create(&thread, NULL, message_thread, &b) == 0);
    for (uint64_t i = 0; i < ALL_REDUCES; i++) {
        reference_fill(i, rank->rank, COUNT, buffer);
        RANK_OK(rank, dlc_comm_all_reduce(comm, buffer, COUNT));
        RANK_CHECK(rank, reference_wrong(i, rank->ranks, 0, COUNT, buffer) == 0);
    }
    RANK_CHECK(rank, pthread_join(thread, NULL) == 0);
    ranks_barrier(rank);
    dlc_comm_close(comm);
    fixture_close(&b);
    dlc_free(buffer);
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(messages_during_collectives, MOST_RANKS - 1) {
    ck_assert_int_eq(ranks_run(2 + _i, 60, with_collectives_body, NULL), 0);
}

/* ---- Waiting ----------------------------------------------------------------- */

/* With messages from all peers waiting, wait_any serves each peer equally often. */
static void fair_body(test_rank *rank, void *context) {
    (void)context;
    enum { EACH = 3 };
    fixture b;
    dlc_request *request[MOST_RANKS] = {NULL};
    int got[MOST_RANKS] = {0}, value[MOST_RANKS];
    fixture_open(&b, rank);
    const dlc_p2p_channel *channel = b.channel;
    for (int i = 0; rank->rank > 0 && i < EACH; i++) {
        int done = 0;
        RANK_OK(rank, channel->send(channel->context, 0, 1, &rank->rank, sizeof(int),
                                    &request[0]));
        while (!done)
            RANK_OK(rank, channel->test(channel->context, request[0], &done));
    }
    ranks_barrier(rank);
    for (int r = 1; rank->rank == 0 && r < rank->ranks; r++)
        RANK_OK(rank, channel->recv(channel->context, r, 1, &value[r], sizeof(int),
                                    &request[r]));
    for (int i = 0; rank->rank == 0 && i < EACH * (rank->ranks - 1); i++) {
        int32_t which = -1;
        RANK_OK(rank,
                channel->wait_any(channel->context, request, rank->ranks, 30, &which));
        RANK_CHECK(rank, which > 0 && value[which] == which);
        RANK_CHECK(rank, got[which]++ == i / (rank->ranks - 1)); /* round robin */
        request[which] = NULL;
        if (got[which] < EACH)
            RANK_OK(rank, channel->recv(channel->context, which, 1, &value[which],
                                        sizeof(int), &request[which]));
    }
    ranks_barrier(rank);
    fixture_close(&b);
}

TEST(wait_any_is_fair) {
    ck_assert_int_eq(ranks_run(MOST_RANKS, 60, fair_body, NULL), 0);
}

/* A rank that does not exist, or the rank itself, is refused. */
static void no_peer_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    dlc_request *request = NULL;
    int32_t peer[] = {-1, rank->rank, rank->ranks};
    fixture_open(&b, rank);
    for (size_t i = 0; i < sizeof peer / sizeof *peer; i++) {
        RANK_CHECK(rank, b.channel->send(b.channel->context, peer[i], 1, &request, 1,
                                         &request) == DLC_ERR_INTERNAL);
        RANK_CHECK(rank, b.channel->recv(b.channel->context, peer[i], 1, &request, 1,
                                         &request) == DLC_ERR_INTERNAL);
    }
    fixture_close(&b);
}

TEST(no_peer) {
    ck_assert_int_eq(ranks_run(2, 60, no_peer_body, NULL), 0);
}

static dlc_status names_no_request(dlc_endpoint *endpoint, dlc_request *const *requests,
                                   int32_t count, double seconds, int32_t *which) {
    (void)endpoint;
    (void)requests;
    (void)seconds;
    *which = count;
    return DLC_OK;
}

static void does_nothing(dlc_endpoint *endpoint) {
    (void)endpoint;
}

/* A transport's wait_any that reports a request which is none. */
static void no_request_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    dlc_request *request = NULL;
    int32_t which = -1;
    fixture_prepare(&b, rank);
    dlc_feature feature = *b.args.level[0].feature;
    dlc_transport_ops ops = *(const dlc_transport_ops *)feature.ops;
    ops.wait_any = names_no_request;
    ops.wakeup = does_nothing;
    feature.ops = &ops;
    b.args.level[0].feature = &feature;
    RANK_OK(rank, dlc_p2p_open(&b.args, &b.p2p));
    const dlc_p2p_channel *channel = dlc_p2p_table(b.p2p);
    RANK_CHECK(rank, channel->wait_any(channel->context, &request, 1, 0.1, &which) ==
                         DLC_ERR_PLUGIN);
    ranks_barrier(rank);
    fixture_close(&b);
}

TEST(no_request) {
    ck_assert_int_eq(ranks_run(2, 60, no_request_body, NULL), 0);
}

/* Without a message wait_any returns at its timeout, and the request remains valid. */
static void time_out_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    dlc_request *request[3] = {NULL};
    int value = 0, sent = 42 + rank->rank;
    int32_t which = 7;
    fixture_open(&b, rank);
    const dlc_p2p_channel *channel = b.channel;
    RANK_OK(rank, channel->wait_any(channel->context, NULL, 0, 0, &which));
    RANK_CHECK(rank, which == -1);
    RANK_OK(rank, channel->recv(channel->context, 1 - rank->rank, 5, &value,
                                sizeof value, &request[1]));
    uint64_t since = dlc_now_ns();
    RANK_OK(rank, channel->wait_any(channel->context, request, 3, 0.02, &which));
    RANK_CHECK(rank, which == -1 && dlc_since(since) >= 0.02);
    ranks_barrier(rank);
    RANK_OK(rank, channel->send(channel->context, 1 - rank->rank, 5, &sent, sizeof sent,
                                &request[2]));
    for (int i = 0; i < 2; i++) {
        RANK_OK(rank, channel->wait_any(channel->context, request, 3, 1e9, &which));
        RANK_CHECK(rank, which == 1 || which == 2);
        request[which] = NULL;
    }
    RANK_CHECK(rank, value == 43 - rank->rank);
    ranks_barrier(rank);
    fixture_close(&b);
}

TEST(time_out) {
    ck_assert_int_eq(ranks_run(2, 60, time_out_body, NULL), 0);
}

/* ---- Wakeup, cancelling, lost_peer peers
 * -------------------------------------------------------------------- */

/* Waits for a message that is never sent. recv may fail already, if the end of the job
 * is known by then. */
static dlc_status wait_for_nothing(fixture *b) {
    static int value;
    dlc_request *request = NULL;
    int32_t which = 7;
    dlc_status status = b->channel->recv(b->channel->context,
                                         (b->rank->rank + 1) % b->rank->ranks, 9,
                                         &value, sizeof value, &request);
    if (!status)
        status = b->channel->wait_any(b->channel->context, &request, 1, 1e9, &which);
    RANK_CHECK(b->rank, which == 7);
    return status;
}

static void *wakeup_thread(void *context) {
    const fixture *b = context;
    usleep(20000);
    b->channel->wakeup(b->channel->context);
    return NULL;
}

/* wakeup makes the current wait_any return, or else the next one, with the request
 * still pending. After cancel the buffers may be freed. */
static void wakeup_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    pthread_t thread;
    dlc_request *request = NULL;
    int32_t which = 7;
    int *value = dlc_alloc(1, sizeof *value);
    fixture_open(&b, rank);
    RANK_OK(rank, b.channel->recv(b.channel->context, 1 - rank->rank, 9, value,
                                  sizeof *value, &request));
    RANK_CHECK(rank, pthread_create(&thread, NULL, wakeup_thread, &b) == 0);
    RANK_OK(rank, b.channel->wait_any(b.channel->context, &request, 1, 1e9, &which));
    RANK_CHECK(rank, which == -1 && pthread_join(thread, NULL) == 0);
    b.channel->wakeup(b.channel->context);
    RANK_OK(rank, b.channel->wait_any(b.channel->context, &request, 1, 1e9, &which));
    RANK_CHECK(rank, which == -1);
    ranks_barrier(rank);
    b.channel->cancel(b.channel->context);
    dlc_free(value);
    RANK_CHECK(rank, b.channel->send(b.channel->context, 1 - rank->rank, 9, NULL, 0,
                                     &request) == DLC_ERR_CANCELLED);
    fixture_close(&b);
}

TEST(wakeup) {
    ck_assert_int_eq(ranks_run(2, 30, wakeup_body, NULL), 0);
}

static void *cancel_thread(void *context) {
    usleep(20000);
    dlc_p2p_cancel(context);
    return NULL;
}

static void cancelled_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    pthread_t thread;
    int done = 0;
    fixture_open(&b, rank);
    RANK_CHECK(rank, pthread_create(&thread, NULL, cancel_thread, b.p2p) == 0);
    RANK_CHECK(rank, wait_for_nothing(&b) == DLC_ERR_CANCELLED);
    RANK_CHECK(rank, pthread_join(thread, NULL) == 0);
    RANK_CHECK(rank, b.channel->check(b.channel->context) == DLC_ERR_CANCELLED);
    RANK_CHECK(rank,
               b.channel->test(b.channel->context, NULL, &done) == DLC_ERR_CANCELLED);
    fixture_close(&b);
}

TEST(cancelled) {
    ck_assert_int_eq(ranks_run(2, 30, cancelled_body, NULL), 0);
}

static void lost_peer_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    fixture_open(&b, rank);
    if (rank->rank == 1)
        abort();
    RANK_CHECK(rank, wait_for_nothing(&b) == DLC_ERR_PEER);
    RANK_CHECK(rank, b.channel->check(b.channel->context) == DLC_ERR_PEER);
    fixture_close(&b);
}

TEST(lost_peer) {
    ck_assert_int_eq(ranks_run_losing(3, 30, 1u << 1, lost_peer_body, NULL), 0);
}

/* With two levels the transport between the nodes must connect all ranks. */
static void all_ranks_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    fixture_prepare(&b, rank);
    b.args.level[1] = b.args.level[0];
    b.args.level[0].within = DLC_DOMAIN_MACHINE;
    b.args.levels = 2;
    RANK_OK(rank, dlc_p2p_open(&b.args, &b.p2p));
    b.channel = dlc_p2p_table(b.p2p);
    pass_messages(&b, 2);
    ranks_barrier(rank);
    dlc_p2p_close(b.p2p);
    b.rank_info[1].node = 1;
    RANK_CHECK(rank, dlc_p2p_open(&b.args, &b.p2p) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "transport host-staged cannot do (") != NULL);
    b.args.ranks = 1;
    RANK_CHECK(rank, dlc_p2p_open(&b.args, &b.p2p) == DLC_ERR_INTERNAL);
    b.p2p = NULL;
    fixture_close(&b);
}

TEST(outer_transport_for_all_ranks) {
    ck_assert_int_eq(ranks_run(2, 60, all_ranks_body, NULL), 0);
}
