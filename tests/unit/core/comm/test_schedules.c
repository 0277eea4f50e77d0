/* Tests collectives, the exchanger and P2P channels on a network whose every delay is
 * chosen (support/fake_net.h): whether messages arrive early, late, in parts or last,
 * the bits are the same and no rank hangs; and ranks that disagree about the size of an
 * exchange get an error. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/exchange.h"
#include "comm/p2p_channel.h"
#include "comm/team.h"
#include "support/fake_net.h"
#include "support/plugins.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/test.h"

enum { MOST_RANKS = 5, SEEDS = SANITIZED ? 2 : 12 };

typedef struct fixture {
    test_rank *rank;
    dlc_rank_info rank_info[MOST_RANKS];
    dlc_comm_args args;
    dlc_comm *comm;
} fixture;

static void put_levels(dlc_comm_args *args) {
    args->level[1] = args->level[0];
    args->level[0].within = DLC_DOMAIN_MACHINE;
    args->levels = 2;
}

/* `nodes`: the node of each rank; NULL: all on one node, with one level. */
static void fixture_open(fixture *b, test_rank *rank, const int *nodes) {
    *b = (fixture){.rank = rank};
    for (int r = 0; r < rank->ranks; r++)
        b->rank_info[r] = (dlc_rank_info){.size = sizeof *b->rank_info,
                                          .node = nodes ? nodes[r] : 0};
    b->args = (dlc_comm_args){
        .level = {{.feature = fake_net_feature(), .within = DLC_DOMAIN_JOB}},
        .levels = 1,
        .rank = rank->rank,
        .ranks = rank->ranks,
        .rank_info = b->rank_info,
        .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
        .device = {.size = sizeof b->args.device, .threads = 1},
        .job = rank,
        .oob_all_gather = ranks_all_gather,
        .check = ranks_check};
    if (nodes)
        put_levels(&b->args);
    RANK_OK(rank, dlc_comm_open(&b->args, &b->comm));
}

static float *alloc_floats(test_rank *rank, size_t count) {
    float *made = dlc_alloc(count + 1, sizeof *made);
    RANK_CHECK(rank, made);
    return made;
}

/* Checks that a run neither hung nor broke the transport's contract. */
static void expect_good(net_result result, int i) {
    ck_assert_msg(!result.deadlocked && result.faults == 0, "case %d: %s", i,
                  result.detail);
    ck_assert_uint_gt(result.steps, 0);
}

/* Loads the plugins before threads are started. */
static void open_plugins(void) {
    ck_assert_ptr_nonnull(plugin_find(DLC_KIND_DEVICE, "cpu"));
}

/* ---- Collectives ------------------------------------------------------------------
 */

static const size_t counts[] = {1, 2, 3, 7, 100, 2048, 2049, 40001};
enum { COUNTS = sizeof counts / sizeof *counts, MOST = 40001 };

/* Sums pairwise, in rank_info. */
static float pairwise(float *value, int n) {
    for (; n > 1; n = (n + 1) / 2)
        for (int i = 0; i < n; i += 2)
            value[i / 2] = i + 1 < n ? value[i] + value[i + 1] : value[i];
    return value[0];
}

static float expected(const fixture *b, uint64_t salt, size_t i) {
    float node_sum[MOST_RANKS], value[MOST_RANKS];
    int nodes = 0;
    for (int node = 0; node < MOST_RANKS; node++) {
        int n = 0;
        for (int r = 0; r < b->rank->ranks; r++)
            if (b->rank_info[r].node == node)
                value[n++] = reference_value(salt, r, i);
        if (n > 0)
            node_sum[nodes++] = pairwise(value, n);
    }
    return pairwise(node_sum, nodes);
}

static void check_sums(const fixture *b, uint64_t salt, size_t begin, size_t end,
                       const float *got) {
    for (size_t i = begin; i < end; i++)
        RANK_CHECK(b->rank, got[i] == expected(b, salt, i));
}

/* Runs the collectives without barriers in between. */
static void collectives_in_a_row(fixture *b, float *buffer, size_t count,
                                 uint64_t salt) {
    test_rank *rank = b->rank;
    size_t begin = 0, end = 0;
    int root = (int)(salt % (uint64_t)rank->ranks);

    reference_fill(salt, rank->rank, count, buffer);
    RANK_OK(rank, dlc_comm_all_reduce(b->comm, buffer, count));
    check_sums(b, salt, 0, count, buffer);
    reference_fill(salt + 1, rank->rank, count, buffer);
    RANK_OK(rank, dlc_comm_reduce_scatter(b->comm, buffer, count));
    dlc_comm_shard(b->comm, count, &begin, &end);
    check_sums(b, salt + 1, begin, end, buffer);
    RANK_OK(rank, dlc_comm_all_gather(b->comm, buffer, count));
    check_sums(b, salt + 1, 0, count, buffer);
    reference_fill(salt + 2, rank->rank, count, buffer);
    RANK_OK(rank, dlc_comm_broadcast(b->comm, root, buffer, count * sizeof *buffer));
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(rank, buffer[i] == reference_value(salt + 2, root, i));
}

static void collectives_body(test_rank *rank, void *context) {
    float *buffer = alloc_floats(rank, MOST);
    fixture b;
    fixture_open(&b, rank, context);
    for (size_t i = 0; i < COUNTS; i++)
        collectives_in_a_row(&b, buffer, counts[i], 10 * i);
    for (int i = 0; i < 3; i++)
        RANK_OK(rank, dlc_comm_barrier(b.comm));
    dlc_comm_close(b.comm);
    dlc_free(buffer);
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(collectives, NET_SCHEDULES *(MOST_RANKS - 1)) {
    net_schedule schedule = (net_schedule)(_i % NET_SCHEDULES);
    int seeds = schedule == NET_RANDOM || schedule == NET_STARVED ? SEEDS : 1;
    open_plugins();
    for (int seed = 0; seed < seeds; seed++)
        expect_good(fake_net_run(2 + _i / NET_SCHEDULES, schedule, (uint64_t)seed,
                                 collectives_body, NULL),
                    seed);
    plugins_close();
}

TEST_EACH(collectives_of_two_levels, NET_SCHEDULES) {
    static const int layouts[][MOST_RANKS] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}};
    open_plugins();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int seed = 0; seed < (_i == NET_RANDOM ? SEEDS : 1 + !SANITIZED); seed++)
            expect_good(fake_net_run(4, (net_schedule)_i, (uint64_t)seed,
                                     collectives_body, (void *)layouts[i]),
                        seed);
    plugins_close();
}

/* On a busy machine a rank may not run for so long that the net goes on without it. */
static net_result run_unhurried(uint64_t seed) {
    net_result result = {.hurried = 1};
    for (int i = 0; i < 10 && result.hurried; i++)
        result = fake_net_run(3, NET_RANDOM, seed, collectives_body, NULL);
    return result;
}

/* A seed determines the schedule, so that a failure can be reproduced. */
TEST(seeds_are_reproducible) {
    open_plugins();
    net_result one = run_unhurried(5);
    net_result again = run_unhurried(5);
    net_result other = run_unhurried(6);
    ck_assert_uint_eq(one.trace, again.trace);
    ck_assert_uint_eq(one.steps, again.steps);
    ck_assert_uint_ne(one.trace, other.trace);
    plugins_close();
}

/* ---- The fake itself --------------------------------------------------------------
 */

/* Both ranks receive, and neither sends. */
static void deadlock_body(test_rank *rank, void *context) {
    (void)context;
    const dlc_transport_ops *ops = fake_net_feature()->ops;
    dlc_transport_args args = {.size = sizeof args,
                               .rank = rank->rank,
                               .ranks = rank->ranks,
                               .job = rank,
                               .oob_all_gather = ranks_all_gather,
                               .check = ranks_check};
    dlc_endpoint *endpoint = NULL;
    dlc_request *request = NULL;
    int value = 0;
    RANK_OK(rank, ops->open(&args, &endpoint));
    RANK_OK(rank, ops->recv(endpoint, 1 - rank->rank, 7, &value, 4, &request));
    RANK_CHECK(rank, ops->wait(endpoint, request) == DLC_ERR_PEER);
    ops->close(endpoint);
}

/* Writes to a send buffer before the request is done. */
static void early_write_body(test_rank *rank, void *context) {
    (void)context;
    const dlc_transport_ops *ops = fake_net_feature()->ops;
    dlc_transport_args args = {.size = sizeof args,
                               .rank = rank->rank,
                               .ranks = rank->ranks,
                               .job = rank,
                               .oob_all_gather = ranks_all_gather,
                               .check = ranks_check};
    dlc_endpoint *endpoint = NULL;
    dlc_request *request = NULL;
    int value = 1;
    RANK_OK(rank, ops->open(&args, &endpoint));
    if (rank->rank == 0) {
        RANK_OK(rank, ops->send(endpoint, 1, 7, &value, sizeof value, &request));
        value = 2;
    } else
        RANK_OK(rank, ops->recv(endpoint, 0, 7, &value, sizeof value, &request));
    RANK_OK(rank, ops->wait(endpoint, request));
    ops->close(endpoint);
}

TEST(fake_detects_misuse) {
    open_plugins();
    net_result deadlock = fake_net_run(2, NET_RANDOM, 1, deadlock_body, NULL);
    ck_assert_int_eq(deadlock.deadlocked, 1);
    ck_assert_ptr_nonnull(strstr(deadlock.detail, "rank 0 receives from 1 (tag 7, 4"));
    ck_assert_ptr_nonnull(strstr(deadlock.detail, "rank 1 receives from 0 (tag 7, 4"));
    net_result early = fake_net_run(2, NET_UNBUFFERED, 1, early_write_body, NULL);
    ck_assert_int_eq(early.faults, 1);
    ck_assert_ptr_nonnull(strstr(early.detail, "written while it was sent: rank 0"));
    expect_good(fake_net_run(2, NET_EARLY, 1, early_write_body, NULL), 0);
    plugins_close();
}

/* ---- The exchange -----------------------------------------------------------------
 */

enum { BUCKETS = 5, COUNT = 12000, ROUNDS = 4 };
static const size_t begin[BUCKETS + 1] = {0, 1, 3000, 3000, 11990, COUNT};
enum { PLAIN, SHARDS, NEWEST_FIRST, MODES };

typedef struct training {
    fixture b;
    float *gradients, *weights;
    dlc_device *device;
    dlc_exchanger *exchanger;
    const dlc_exchange *table;
} training;

static void training_open(training *t, test_rank *rank, int mode) {
    fixture_open(&t->b, rank, NULL);
    dlc_device_args device = {.size = sizeof device, .threads = 1};
    dlc_exchange_args args = {.comm = t->b.comm,
                              .device_ops = t->b.args.device_ops,
                              .gradients = t->gradients = alloc_floats(rank, COUNT),
                              .weights = t->weights = alloc_floats(rank, COUNT),
                              .begin = begin,
                              .buckets = BUCKETS,
                              .shard_optimizer = mode == SHARDS,
                              .newest_first = mode == NEWEST_FIRST};
    RANK_OK(rank, args.device_ops->open(&device, &t->device));
    args.device = t->device;
    RANK_OK(rank, dlc_exchanger_open(&args, &t->exchanger));
    t->table = dlc_exchanger_table(t->exchanger);
}

/* Sets each rank's shard of the weights to the reduction and all-gathers them. */
static void update_shards(training *t, uint64_t round) {
    const dlc_exchange *table = t->table;
    test_rank *rank = t->b.rank;
    for (int32_t k = 0; k < BUCKETS; k++) {
        size_t from = table->shard_begin[k], to = table->shard_end[k];
        RANK_OK(rank, table->wait(table->context, k));
        memcpy(t->weights + from, t->gradients + from, (to - from) * sizeof(float));
        RANK_OK(rank, table->all_gather(table->context, k));
    }
    RANK_OK(rank, table->flush(table->context));
    RANK_CHECK(rank, reference_wrong(round, rank->ranks, 0, COUNT, t->weights) == 0);
}

static void training_body(test_rank *rank, void *context) {
    int mode = *(const int *)context;
    training t;
    training_open(&t, rank, mode);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (int32_t k = 0; k < BUCKETS; k++) {
            for (size_t i = begin[k]; i < begin[k + 1]; i++)
                t.gradients[i] = reference_value(round, rank->rank, i);
            RANK_OK(rank, t.table->start(t.table->context, k));
        }
        if (mode == SHARDS) {
            update_shards(&t, round);
            continue;
        }
        for (int32_t k = 0; k < BUCKETS; k++) {
            int32_t bucket = round % 2 ? BUCKETS - 1 - k : k;
            RANK_OK(rank, t.table->wait(t.table->context, bucket));
            RANK_CHECK(rank, reference_wrong(round, rank->ranks, begin[bucket],
                                             begin[bucket + 1], t.gradients) == 0);
        }
    }
    dlc_exchanger_close(t.exchanger);
    t.b.args.device_ops->close(t.device);
    dlc_comm_close(t.b.comm);
    dlc_free(t.gradients);
    dlc_free(t.weights);
}

TEST_EACH(exchange, NET_SCHEDULES *MODES) {
    net_schedule schedule = (net_schedule)(_i % NET_SCHEDULES);
    int mode = _i / NET_SCHEDULES;
    open_plugins();
    for (int ranks = 2; ranks < 5; ranks++)
        for (int seed = 0; seed < (schedule == NET_RANDOM ? SEEDS / 2 : 1); seed++)
            expect_good(
                fake_net_run(ranks, schedule, (uint64_t)seed, training_body, &mode),
                seed);
    plugins_close();
}

/* ---- P2P channels
 * --------------------------------------------------------------------
 */

enum { MESSAGES = 40, TAGS = 3, MOST_BYTES = 5000 };

static size_t message_bytes(int from, int to, int i) {
    dlc_random random = dlc_random_make(3, (uint64_t)((from * 8 + to) * MESSAGES + i));
    return dlc_random_below(&random, i % 7 == 0 ? MOST_BYTES : 100);
}

static int message_fill(int from, int to, int i) {
    return (from * 31 + to * 17 + i * 7) & 0xff;
}

/* One message per tag is in flight from and to every peer, all in one list of requests.
 */
typedef struct message_slot {
    unsigned char bytes[MOST_BYTES + 1];
    int peer, sends, i;
} message_slot;

static dlc_request *start_message(const dlc_p2p_channel *channel, test_rank *rank,
                                  message_slot *slot) {
    dlc_request *request = NULL;
    int me = rank->rank, peer = slot->peer, i = slot->i;
    dlc_tag tag = 50 + (dlc_tag)(i % TAGS);
    if (i >= MESSAGES)
        return NULL;
    if (!slot->sends) {
        RANK_OK(rank, channel->recv(channel->context, peer, tag, slot->bytes,
                                    message_bytes(peer, me, i), &request));
        return request;
    }
    size_t bytes = message_bytes(me, peer, i);
    memset(slot->bytes, message_fill(me, peer, i), bytes);
    RANK_OK(rank,
            channel->send(channel->context, peer, tag, slot->bytes, bytes, &request));
    return request;
}

static void check_message(test_rank *rank, const message_slot *slot) {
    size_t bytes = message_bytes(slot->peer, rank->rank, slot->i);
    int fill = message_fill(slot->peer, rank->rank, slot->i);
    for (size_t k = 0; !slot->sends && k < bytes; k++)
        RANK_CHECK(rank, slot->bytes[k] == fill);
}

static void p2p_body(test_rank *rank, void *context) {
    (void)context;
    enum { SLOTS = 2 * TAGS * MOST_RANKS };
    message_slot *slots = dlc_alloc(SLOTS, sizeof *slots);
    dlc_request *requests[SLOTS] = {NULL};
    dlc_p2p *p2p = NULL;
    int32_t left = 0, which = -1;
    fixture b;
    fixture_open(&b, rank, NULL);
    RANK_CHECK(rank, slots);
    RANK_OK(rank, dlc_p2p_open(&b.args, &p2p));
    const dlc_p2p_channel *channel = dlc_p2p_table(p2p);
    for (int s = 0; s < 2 * TAGS * rank->ranks; s++) {
        slots[s].sends = s % 2;
        slots[s].i = s / 2 % TAGS;
        slots[s].peer = s / (2 * TAGS);
        if (slots[s].peer != rank->rank)
            left += (requests[s] = start_message(channel, rank, &slots[s])) != NULL;
    }
    while (left > 0) {
        RANK_OK(rank, channel->wait_any(channel->context, requests, SLOTS, 60, &which));
        RANK_CHECK(rank, which >= 0);
        check_message(rank, &slots[which]);
        slots[which].i += TAGS;
        requests[which] = start_message(channel, rank, &slots[which]);
        left -= requests[which] == NULL;
    }
    dlc_p2p_close(p2p);
    dlc_comm_close(b.comm);
    dlc_free(slots);
}

TEST_EACH(p2p_channels, NET_SCHEDULES) {
    open_plugins();
    for (int ranks = 2; ranks < 5; ranks++)
        for (int seed = 0; seed < (_i == NET_RANDOM ? SEEDS : 1); seed++)
            expect_good(
                fake_net_run(ranks, (net_schedule)_i, (uint64_t)seed, p2p_body, NULL),
                seed);
    plugins_close();
}

/* ---- Ranks that disagree about the count
 * ----------------------------------------------------
 */

typedef enum call_kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    CALLS
} call_kind;

typedef struct mismatch {
    call_kind call;
    size_t all, one; /* elements; `one` on rank `odd` */
    int odd;
    dlc_status status[MOST_RANKS];
    int reported; /* a rank's error named both sizes */
} mismatch;

static dlc_status make_call(fixture *b, call_kind call, float *buffer, size_t count) {
    switch (call) {
    case ALL_REDUCE:
        return dlc_comm_all_reduce(b->comm, buffer, count);
    case REDUCE_SCATTER:
        return dlc_comm_reduce_scatter(b->comm, buffer, count);
    case ALL_GATHER:
        return dlc_comm_all_gather(b->comm, buffer, count);
    default:
        return dlc_comm_broadcast(b->comm, 0, buffer, count * sizeof *buffer);
    }
}

/* A rank that gets an error ends the job, as the core does, which releases the others.
 * A rank that gets none makes one more call, the same on all ranks. */
static void mismatch_body(test_rank *rank, void *context) {
    mismatch *u = context;
    size_t count = rank->rank == u->odd ? u->one : u->all;
    size_t most = u->one > u->all ? u->one : u->all;
    float *buffer = alloc_floats(rank, most);
    fixture b;
    fixture_open(&b, rank, NULL);
    buffer[count] = 42.0F;
    dlc_status status = make_call(&b, u->call, buffer, count);
    RANK_CHECK(rank, buffer[count] == 42.0F);
    RANK_CHECK(rank, u->call != ALL_REDUCE ||
                         status != DLC_OK); /* it needs every rank's data */
    if (status == DLC_ERR_CONFIG && strstr(dlc_detail(), "bytes were sent") &&
        strstr(dlc_detail(), "are expected"))
        __atomic_store_n(&u->reported, 1, __ATOMIC_SEQ_CST);
    if (status != DLC_OK)
        ranks_end(rank);
    u->status[rank->rank] = status == DLC_OK ? dlc_comm_barrier(b.comm) : status;
    if (u->status[rank->rank] != DLC_OK)
        ranks_end(rank);
    dlc_comm_close(b.comm);
    dlc_free(buffer);
}

static const size_t pairs[][2] = {
    {1, 2},       {2, 1},     {3, 7},         {100, 101}, {2048, 2049},
    {2047, 4000}, {9000, 90}, {40001, 40002}, {3, 4},     {300000, 2}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Small all-reduces take one round, larger ones two, with other tags: then both ranks
 * wait (a job's hang timeout ends that) instead of taking each other's messages. */
static int may_hang(const mismatch *u) {
    enum { SMALL = 2048 }; /* core/comm/messages.c */
    return u->call == ALL_REDUCE && (u->all <= SMALL) != (u->one <= SMALL);
}

static void run_mismatch(net_schedule schedule, int ranks, mismatch u) {
    mismatch at = u;
    net_result result = fake_net_run(ranks, schedule, 1, mismatch_body, &at);
    ck_assert_msg(at.reported || (result.deadlocked && may_hang(&at)),
                  "call %d of %zu, on rank %d of %zu, %d ranks, schedule %d: %s",
                  (int)at.call, at.all, at.odd, at.one, ranks, (int)schedule,
                  result.deadlocked ? result.detail : "no rank reported it");
    for (int r = 0; r < ranks; r++)
        ck_assert(at.status[r] == DLC_ERR_CONFIG || at.status[r] == DLC_ERR_PEER);
}

TEST_EACH(mismatched_counts, NET_SCHEDULES *CALLS) {
    open_plugins();
    for (size_t i = 0; i < PAIRS; i++)
        for (int ranks = 2; ranks < 4; ranks++)
            for (int odd = 0; odd < ranks; odd++)
                run_mismatch((net_schedule)(_i % NET_SCHEDULES), ranks,
                             (mismatch){.call = (call_kind)(_i / NET_SCHEDULES),
                                        .all = pairs[i][0],
                                        .one = pairs[i][1],
                                        .odd = odd});
    plugins_close();
}
