/* Collectives, the exchange and mailboxes on a network whose every delay is chosen
 * (support/fake_net.h): whatever comes early, late, in parts or last, the bits are the
 * same and nobody waits for ever; and ranks that don't agree on how much they exchange
 * are told so. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/exchange.h"
#include "comm/mail.h"
#include "comm/team.h"
#include "support/fake_net.h"
#include "support/plugins.h"
#include "support/reference.h"
#include "support/sanitized.h"

enum { MOST_RANKS = 5, SEEDS = SANITIZED ? 3 : 12 };

typedef struct bench {
    test_rank *rank;
    dlc_place place[MOST_RANKS];
    dlc_comm_args args;
    dlc_comm *comm;
} bench;

/* `nodes`: of each rank; NULL: all on one, joined by one transport. */
static void bench_open(bench *b, test_rank *rank, const int *nodes) {
    *b = (bench){.rank = rank};
    for (int r = 0; r < rank->ranks; r++)
        b->place[r] = (dlc_place){.size = sizeof *b->place,
                                  .node = nodes ? nodes[r] : 0};
    b->args = (dlc_comm_args){.level = {.feature = fake_net_feature()},
                              .rank = rank->rank,
                              .ranks = rank->ranks,
                              .places = b->place,
                              .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                              .device = {.size = sizeof b->args.device, .threads = 1},
                              .job = rank,
                              .allgather = ranks_allgather,
                              .check = ranks_check};
    if (nodes)
        b->args.between.feature = b->args.level.feature;
    RANK_OK(rank, dlc_comm_open(&b->args, &b->comm));
}

static float *room(test_rank *rank, size_t count) {
    float *made = dlc_alloc(count + 1, sizeof *made);
    RANK_CHECK(rank, made);
    return made;
}

/* What every run must have been. */
static void expect_good(net_result result, int i) {
    ck_assert_msg(!result.stuck && result.faults == 0, "case %d: %s", i, result.detail);
    ck_assert_uint_gt(result.steps, 0);
}

/* The plugins are opened before there are threads. */
static void open_plugins(void) {
    ck_assert_ptr_nonnull(plugin_find(DLC_KIND_DEVICE, "cpu"));
}

/* ---- Collectives ------------------------------------------------------------------
 */

static const size_t counts[] = {1, 2, 3, 7, 100, 2048, 2049, 40001};
enum { COUNTS = sizeof counts / sizeof *counts, MOST = 40001 };

/* Pairwise over the ranks of each node, then over the nodes. */
static float pairwise(float *value, int n) {
    for (; n > 1; n = (n + 1) / 2)
        for (int i = 0; i < n; i += 2)
            value[i / 2] = i + 1 < n ? value[i] + value[i + 1] : value[i];
    return value[0];
}

static float sum_of(const bench *b, uint64_t salt, size_t i) {
    float node_sum[MOST_RANKS], value[MOST_RANKS];
    int nodes = 0;
    for (int node = 0; node < MOST_RANKS; node++) {
        int n = 0;
        for (int r = 0; r < b->rank->ranks; r++)
            if (b->place[r].node == node)
                value[n++] = reference_value(salt, r, i);
        if (n > 0)
            node_sum[nodes++] = pairwise(value, n);
    }
    return pairwise(node_sum, nodes);
}

static void check_sums(const bench *b, uint64_t salt, size_t begin, size_t end,
                       const float *got) {
    for (size_t i = begin; i < end; i++)
        RANK_CHECK(b->rank, got[i] == sum_of(b, salt, i));
}

/* Nothing between them holds the ranks together. */
static void one_after_another(bench *b, float *buffer, size_t count, uint64_t salt) {
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
    float *buffer = room(rank, MOST);
    bench b;
    bench_open(&b, rank, context);
    for (size_t i = 0; i < COUNTS; i++)
        one_after_another(&b, buffer, counts[i], 10 * i);
    for (int i = 0; i < 3; i++)
        RANK_OK(rank, dlc_comm_barrier(b.comm));
    dlc_comm_close(b.comm);
    dlc_free(buffer);
}

START_TEST(collectives) {
    net_schedule schedule = (net_schedule)(_i % NET_SCHEDULES);
    int seeds = schedule == NET_RANDOM || schedule == NET_STARVED ? SEEDS : 1;
    open_plugins();
    for (int seed = 0; seed < seeds; seed++)
        expect_good(fake_net_run(2 + _i / NET_SCHEDULES, schedule, (uint64_t)seed,
                                 collectives_body, NULL),
                    seed);
    plugins_close();
}
END_TEST

START_TEST(collectives_of_two_levels) {
    static const int layouts[][MOST_RANKS] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}};
    open_plugins();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int seed = 0; seed < (_i == NET_RANDOM ? SEEDS : 2); seed++)
            expect_good(fake_net_run(4, (net_schedule)_i, (uint64_t)seed,
                                     collectives_body, (void *)layouts[i]),
                        seed);
    plugins_close();
}
END_TEST

/* A seed is one schedule, so that what it found can be looked at again; another seed is
 * another one. */
START_TEST(seeds_are_schedules) {
    open_plugins();
    net_result one = fake_net_run(3, NET_RANDOM, 5, collectives_body, NULL);
    net_result again = fake_net_run(3, NET_RANDOM, 5, collectives_body, NULL);
    net_result other = fake_net_run(3, NET_RANDOM, 6, collectives_body, NULL);
    ck_assert_uint_eq(one.trace, again.trace);
    ck_assert_uint_eq(one.steps, again.steps);
    ck_assert_uint_ne(one.trace, other.trace);
    plugins_close();
}
END_TEST

/* ---- The fake itself --------------------------------------------------------------
 */

/* Both receive before they send. */
static void stuck_body(test_rank *rank, void *context) {
    (void)context;
    const dlc_transport_ops *ops = fake_net_feature()->ops;
    dlc_transport_args args = {.size = sizeof args,
                               .rank = rank->rank,
                               .ranks = rank->ranks,
                               .job = rank,
                               .allgather = ranks_allgather,
                               .check = ranks_check};
    dlc_endpoint *endpoint = NULL;
    dlc_request *request = NULL;
    int value = 0;
    RANK_OK(rank, ops->open(&args, &endpoint));
    RANK_OK(rank, ops->recv(endpoint, 1 - rank->rank, 7, &value, 4, &request));
    RANK_CHECK(rank, ops->wait(endpoint, request) == DLC_ERR_PEER);
    ops->close(endpoint);
}

/* Writes what it sends before it was told that it may. */
static void hasty_body(test_rank *rank, void *context) {
    (void)context;
    const dlc_transport_ops *ops = fake_net_feature()->ops;
    dlc_transport_args args = {.size = sizeof args,
                               .rank = rank->rank,
                               .ranks = rank->ranks,
                               .job = rank,
                               .allgather = ranks_allgather,
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

START_TEST(the_fake_finds) {
    open_plugins();
    net_result stuck = fake_net_run(2, NET_RANDOM, 1, stuck_body, NULL);
    ck_assert_int_eq(stuck.stuck, 1);
    ck_assert_ptr_nonnull(strstr(stuck.detail, "rank 0 receives from 1 (tag 7, 4"));
    ck_assert_ptr_nonnull(strstr(stuck.detail, "rank 1 receives from 0 (tag 7, 4"));
    net_result hasty = fake_net_run(2, NET_NO_ROOM, 1, hasty_body, NULL);
    ck_assert_int_eq(hasty.faults, 1);
    ck_assert_ptr_nonnull(strstr(hasty.detail, "written while it was sent: rank 0"));
    expect_good(fake_net_run(2, NET_EARLY, 1, hasty_body, NULL), 0);
    plugins_close();
}
END_TEST

/* ---- The exchange -----------------------------------------------------------------
 */

enum { BUCKETS = 5, COUNT = 12000, ROUNDS = 4 };
static const size_t begin[BUCKETS + 1] = {0, 1, 3000, 3000, 11990, COUNT};
enum { PLAIN, SHARDS, NEWEST_FIRST, WAYS };

typedef struct training {
    bench b;
    float *gradients, *weights;
    dlc_device *device;
    dlc_exchanger *exchanger;
    const dlc_exchange *table;
} training;

static void training_open(training *t, test_rank *rank, int way) {
    bench_open(&t->b, rank, NULL);
    dlc_device_args device = {.size = sizeof device, .threads = 1};
    dlc_exchange_args args = {.comm = t->b.comm,
                              .device_ops = t->b.args.device_ops,
                              .gradients = t->gradients = room(rank, COUNT),
                              .weights = t->weights = room(rank, COUNT),
                              .begin = begin,
                              .buckets = BUCKETS,
                              .shards = way == SHARDS,
                              .newest_first = way == NEWEST_FIRST};
    RANK_OK(rank, args.device_ops->open(&device, &t->device));
    args.device = t->device;
    RANK_OK(rank, dlc_exchanger_open(&args, &t->exchanger));
    t->table = dlc_exchanger_table(t->exchanger);
}

/* The weights become the sums, of the own shard first. */
static void update_shards(training *t, uint64_t round) {
    const dlc_exchange *table = t->table;
    test_rank *rank = t->b.rank;
    for (int32_t k = 0; k < BUCKETS; k++) {
        size_t from = table->own_begin[k], to = table->own_end[k];
        RANK_OK(rank, table->wait(table->context, k));
        memcpy(t->weights + from, t->gradients + from, (to - from) * sizeof(float));
        RANK_OK(rank, table->spread(table->context, k));
    }
    RANK_OK(rank, table->settle(table->context));
    RANK_CHECK(rank, reference_wrong(round, rank->ranks, 0, COUNT, t->weights) == 0);
}

static void training_body(test_rank *rank, void *context) {
    int way = *(const int *)context;
    training t;
    training_open(&t, rank, way);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (int32_t k = 0; k < BUCKETS; k++) {
            for (size_t i = begin[k]; i < begin[k + 1]; i++)
                t.gradients[i] = reference_value(round, rank->rank, i);
            RANK_OK(rank, t.table->start(t.table->context, k));
        }
        if (way == SHARDS) {
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

START_TEST(exchange) {
    net_schedule schedule = (net_schedule)(_i % NET_SCHEDULES);
    int way = _i / NET_SCHEDULES;
    open_plugins();
    for (int ranks = 2; ranks < 5; ranks++)
        for (int seed = 0; seed < (schedule == NET_RANDOM ? SEEDS / 2 : 1); seed++)
            expect_good(
                fake_net_run(ranks, schedule, (uint64_t)seed, training_body, &way),
                seed);
    plugins_close();
}
END_TEST

/* ---- Mailboxes --------------------------------------------------------------------
 */

enum { LETTERS = 40, TAGS = 3, MOST_BYTES = 5000 };

static size_t letter_bytes(int from, int to, int i) {
    dlc_random random = dlc_random_make(3, (uint64_t)((from * 8 + to) * LETTERS + i));
    return dlc_random_below(&random, i % 7 == 0 ? MOST_BYTES : 100);
}

static int letter_fill(int from, int to, int i) {
    return (from * 31 + to * 17 + i * 7) & 0xff;
}

/* Two of each tag are in flight from and to every peer, sends and receives in one list.
 */
typedef struct mail_slot {
    unsigned char bytes[MOST_BYTES + 1];
    int peer, sends, i;
} mail_slot;

static dlc_request *put_letter(const dlc_mail *mail, test_rank *rank, mail_slot *slot) {
    dlc_request *request = NULL;
    int me = rank->rank, peer = slot->peer, i = slot->i;
    dlc_tag tag = 50 + (dlc_tag)(i % TAGS);
    if (i >= LETTERS)
        return NULL;
    if (!slot->sends) {
        RANK_OK(rank, mail->recv(mail->context, peer, tag, slot->bytes,
                                 letter_bytes(peer, me, i), &request));
        return request;
    }
    size_t bytes = letter_bytes(me, peer, i);
    memset(slot->bytes, letter_fill(me, peer, i), bytes);
    RANK_OK(rank, mail->send(mail->context, peer, tag, slot->bytes, bytes, &request));
    return request;
}

static void check_letter(test_rank *rank, const mail_slot *slot) {
    size_t bytes = letter_bytes(slot->peer, rank->rank, slot->i);
    int fill = letter_fill(slot->peer, rank->rank, slot->i);
    for (size_t k = 0; !slot->sends && k < bytes; k++)
        RANK_CHECK(rank, slot->bytes[k] == fill);
}

static void mail_body(test_rank *rank, void *context) {
    (void)context;
    enum { SLOTS = 2 * TAGS * MOST_RANKS };
    mail_slot *slots = dlc_alloc(SLOTS, sizeof *slots);
    dlc_request *requests[SLOTS] = {NULL};
    dlc_mailbox *mailbox = NULL;
    int32_t left = 0, which = -1;
    bench b;
    bench_open(&b, rank, NULL);
    RANK_CHECK(rank, slots);
    RANK_OK(rank, dlc_mailbox_open(&b.args, &mailbox));
    const dlc_mail *mail = dlc_mailbox_table(mailbox);
    for (int s = 0; s < 2 * TAGS * rank->ranks; s++) {
        slots[s].sends = s % 2;
        slots[s].i = s / 2 % TAGS;
        slots[s].peer = s / (2 * TAGS);
        if (slots[s].peer != rank->rank)
            left += (requests[s] = put_letter(mail, rank, &slots[s])) != NULL;
    }
    while (left > 0) {
        RANK_OK(rank, mail->wait_any(mail->context, requests, SLOTS, 60, &which));
        RANK_CHECK(rank, which >= 0);
        check_letter(rank, &slots[which]);
        slots[which].i += TAGS;
        requests[which] = put_letter(mail, rank, &slots[which]);
        left -= requests[which] == NULL;
    }
    dlc_mailbox_close(mailbox);
    dlc_comm_close(b.comm);
    dlc_free(slots);
}

START_TEST(mailboxes) {
    open_plugins();
    for (int ranks = 2; ranks < 5; ranks++)
        for (int seed = 0; seed < (_i == NET_RANDOM ? SEEDS : 1); seed++)
            expect_good(
                fake_net_run(ranks, (net_schedule)_i, (uint64_t)seed, mail_body, NULL),
                seed);
    plugins_close();
}
END_TEST

/* ---- Counts that are not alike ----------------------------------------------------
 */

typedef enum call_kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    CALLS
} call_kind;

typedef struct unlike {
    call_kind call;
    size_t all, one; /* elements; `one` on rank `odd` */
    int odd;
    dlc_status status[MOST_RANKS];
    int told; /* somebody was told both sizes */
} unlike;

static dlc_status make_call(bench *b, call_kind call, float *buffer, size_t count) {
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

/* Whoever finds out ends the job, as the core does, and so everybody is through. Who
 * doesn't goes on to a call that all make alike. */
static void unlike_body(test_rank *rank, void *context) {
    unlike *u = context;
    size_t count = rank->rank == u->odd ? u->one : u->all;
    size_t most = u->one > u->all ? u->one : u->all;
    float *buffer = room(rank, most);
    bench b;
    bench_open(&b, rank, NULL);
    buffer[count] = 42.0F;
    dlc_status status = make_call(&b, u->call, buffer, count);
    RANK_CHECK(rank, buffer[count] == 42.0F);
    RANK_CHECK(rank,
               u->call != ALL_REDUCE || status != DLC_OK); /* it needs everybody */
    if (status == DLC_ERR_CONFIG && strstr(dlc_detail(), "bytes were sent") &&
        strstr(dlc_detail(), "are expected"))
        __atomic_store_n(&u->told, 1, __ATOMIC_SEQ_CST);
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

/* Small sums go another way than large ones, whose messages may have the same sizes:
 * then both wait, which a job's hang timeout ends, and neither takes the other's. */
static int may_wait(const unlike *u) {
    enum { SMALL = 2048 }; /* core/comm/messages.c */
    return u->call == ALL_REDUCE && (u->all <= SMALL) != (u->one <= SMALL);
}

static void run_unlike(net_schedule schedule, int ranks, unlike u) {
    unlike at = u;
    net_result result = fake_net_run(ranks, schedule, 1, unlike_body, &at);
    ck_assert_msg(at.told || (result.stuck && may_wait(&at)),
                  "call %d of %zu, on rank %d of %zu, %d ranks, schedule %d: %s",
                  (int)at.call, at.all, at.odd, at.one, ranks, (int)schedule,
                  result.stuck ? result.detail : "nobody was told");
    for (int r = 0; r < ranks; r++)
        ck_assert(at.status[r] == DLC_ERR_CONFIG || at.status[r] == DLC_ERR_PEER);
}

START_TEST(unlike_counts) {
    open_plugins();
    for (size_t i = 0; i < PAIRS; i++)
        for (int ranks = 2; ranks < 4; ranks++)
            for (int odd = 0; odd < ranks; odd++)
                run_unlike((net_schedule)(_i % NET_SCHEDULES), ranks,
                           (unlike){.call = (call_kind)(_i / NET_SCHEDULES),
                                    .all = pairs[i][0],
                                    .one = pairs[i][1],
                                    .odd = odd});
    plugins_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("schedules");
    TCase *tests = tcase_create("schedules");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_fake_finds);
    tcase_add_test(tests, seeds_are_schedules);
    tcase_add_loop_test(tests, collectives, 0, NET_SCHEDULES * (MOST_RANKS - 1));
    tcase_add_loop_test(tests, collectives_of_two_levels, 0, NET_SCHEDULES);
    tcase_add_loop_test(tests, exchange, 0, NET_SCHEDULES * WAYS);
    tcase_add_loop_test(tests, mailboxes, 0, NET_SCHEDULES);
    tcase_add_loop_test(tests, unlike_counts, 0, NET_SCHEDULES * CALLS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
