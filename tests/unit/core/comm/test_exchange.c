/* Tests the exchanger (core/comm/exchange.c) with ranks that are ready at different
 * times: every reduction is bitwise right, in any order of waiting, and errors reach
 * the train thread. Also the communication benchmark. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "comm/comm_benchmark.h"
#include "comm/exchange.h"
#include "config/config.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/reference.h"
#include "support/test.h"
#include "support/updates.h"

enum { BUCKETS = 7, COUNT = 60000, ROUNDS = 20 };
static const size_t begin[BUCKETS + 1] = {0, 1, 5000, 5000, 9000, 40000, 59990, COUNT};

typedef struct fixture {
    test_rank *rank;
    dlc_settings *settings;
    dlc_comm *comm;
    dlc_exchanger *exchanger;
    const dlc_exchange *table;
    float *gradients, *weights;
    dlc_memory memory[2]; /* of both arenas */
    dlc_device *device;
} fixture;

enum { PLAIN, SHARDS, NEWEST_FIRST, FUSED_UPDATES }; /* modes of the exchanger */

static float *take_memory(fixture *b, const dlc_device_ops *ops, dlc_memory *memory) {
    memory->size = sizeof *memory;
    RANK_OK(b->rank,
            ops->alloc(b->device, COUNT * sizeof(float), DLC_MEM_SHARED, memory));
    RANK_OK(b->rank, dlc_comm_register_buffer(b->comm, memory));
    return memory->base;
}

static void fixture_open(fixture *b, test_rank *rank, int mode) {
    const dlc_feature *feature = plugin_find(
        DLC_KIND_TRANSPORT, mode == FUSED_UPDATES ? "p2p-tree" : "host-staged");
    dlc_rank_info rank_info[8];

    *b = (fixture){.rank = rank, .settings = plugin_settings(feature, NULL)};
    for (int r = 0; r < rank->ranks; r++)
        rank_info[r] = (dlc_rank_info){.size = sizeof *rank_info};
    dlc_comm_args args = {.level = {{feature, b->settings, DLC_DOMAIN_JOB}},
                          .levels = 1,
                          .rank = rank->rank,
                          .ranks = rank->ranks,
                          .rank_info = rank_info,
                          .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                          .device = {.size = sizeof args.device},
                          .job = rank,
                          .oob_all_gather = ranks_all_gather,
                          .check = ranks_check};
    RANK_OK(rank, dlc_comm_open(&args, &b->comm));
    RANK_OK(rank, args.device_ops->open(&args.device, &b->device));
    b->gradients = take_memory(b, args.device_ops, &b->memory[0]);
    b->weights = take_memory(b, args.device_ops, &b->memory[1]);
    dlc_exchange_args exchange = {.comm = b->comm,
                                  .gradients = b->gradients,
                                  .weights = b->weights,
                                  .begin = begin,
                                  .buckets = BUCKETS,
                                  .shard_optimizer = mode == SHARDS ||
                                                     mode == FUSED_UPDATES,
                                  .newest_first = mode == NEWEST_FIRST,
                                  .device_ops = args.device_ops,
                                  .device = b->device};
    RANK_OK(rank, dlc_exchanger_open(&exchange, &b->exchanger));
    b->table = dlc_exchanger_table(b->exchanger);
}

static void fixture_close(fixture *b) {
    dlc_exchanger_close(b->exchanger);
    const dlc_device_ops *device = plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    dlc_comm_close(b->comm);
    device->free(b->device, &b->memory[1]);
    device->free(b->device, &b->memory[0]);
    device->close(b->device);
    dlc_settings_free(b->settings);
    plugins_close();
}

static dlc_status start(fixture *b, int32_t bucket) {
    return b->table->start(b->table->context, bucket);
}

static dlc_status wait(fixture *b, int32_t bucket) {
    return b->table->wait(b->table->context, bucket);
}

static void backward(fixture *b, dlc_random *random, uint64_t salt, int32_t bucket) {
    if (dlc_random_below(random, 3) == 0)
        usleep((unsigned)dlc_random_below(random, 1500));
    for (size_t i = begin[bucket]; i < begin[bucket + 1]; i++)
        b->gradients[i] = reference_value(salt, b->rank->rank, i);
}

static void check_bucket(fixture *b, uint64_t salt, int32_t bucket) {
    RANK_OK(b->rank, wait(b, bucket));
    RANK_CHECK(b->rank, reference_wrong(salt, b->rank->ranks, begin[bucket],
                                        begin[bucket + 1], b->gradients) == 0);
}

static void overlapped_body(test_rank *rank, void *context) {
    dlc_random random = dlc_random_make(11, (uint64_t)rank->rank);
    fixture b;

    /* Newest first: waiting is allowed only after all have been started. */
    int may_wait = *(const int *)context != NEWEST_FIRST;
    fixture_open(&b, rank, *(const int *)context);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int32_t next = 0;
        for (int32_t bucket = 0; bucket < BUCKETS; bucket++) {
            backward(&b, &random, round, bucket);
            RANK_OK(rank, start(&b, bucket));
            while (may_wait && next <= bucket && dlc_random_below(&random, 4) == 0)
                check_bucket(&b, round, next++);
        }
        if (round % 3 == 0) /* in reverse order */
            for (int32_t bucket = BUCKETS - 1; bucket >= next; bucket--)
                check_bucket(&b, round, bucket);
        else
            for (; next < BUCKETS; next++)
                check_bucket(&b, round, next);
    }
    dlc_exchange_stats stats = dlc_exchanger_stats(b.exchanger);
    RANK_CHECK(rank,
               stats.bytes == (rank->ranks > 1 ? sizeof(float) * COUNT * ROUNDS : 0));
    RANK_CHECK(rank, (stats.busy > 0) == (rank->ranks > 1) && stats.waited >= 0);
    /* Between rounds the train thread may use the communicator. */
    RANK_OK(rank, dlc_comm_barrier(b.comm));
    fixture_close(&b);
}

TEST_SETTINGS(.timeout = 120);

TEST_RANGE(overlapped, 1, 6) {
    int mode = PLAIN;
    ck_assert_int_eq(ranks_run(_i, 60, overlapped_body, &mode), 0);
}

TEST_RANGE(newest_first, 1, 6) {
    int mode = NEWEST_FIRST;
    ck_assert_int_eq(ranks_run(_i, 60, overlapped_body, &mode), 0);
}

/* Every rank "updates" its shard of the weights to the reduction; all ranks get all. */
static void sharded_body(test_rank *rank, void *context) {
    dlc_random random = dlc_random_make(12, (uint64_t)rank->rank);
    fixture b;

    (void)context;
    fixture_open(&b, rank, SHARDS);
    const dlc_exchange *table = b.table;
    RANK_CHECK(rank, (table->all_gather != NULL) == (rank->ranks > 1));
    for (uint64_t round = 0; rank->ranks > 1 && round < ROUNDS; round++) {
        for (int32_t bucket = 0; bucket < BUCKETS; bucket++) {
            backward(&b, &random, round, bucket);
            RANK_OK(rank, start(&b, bucket));
        }
        for (int32_t bucket = 0; bucket < BUCKETS; bucket++) {
            size_t from = table->shard_begin[bucket], to = table->shard_end[bucket];
            RANK_CHECK(rank, begin[bucket] <= from && to <= begin[bucket + 1]);
            RANK_OK(rank, wait(&b, bucket));
            memcpy(b.weights + from, b.gradients + from, (to - from) * sizeof(float));
            RANK_OK(rank, table->all_gather(table->context, bucket));
        }
        RANK_OK(rank, table->flush(table->context));
        RANK_CHECK(rank, reference_wrong(round, rank->ranks, 0, COUNT, b.weights) == 0);
        RANK_CHECK(rank, table->shard_begin[BUCKETS - 1] == begin[BUCKETS - 1] &&
                             table->shard_end[BUCKETS - 1] == COUNT);
    }
    /* A solver's slot: here the weights again, on each rank its own shard only. */
    memset(b.gradients, 0, COUNT * sizeof(float));
    for (int32_t bucket = 0; rank->ranks > 1 && bucket < BUCKETS; bucket++) {
        size_t from = table->shard_begin[bucket], to = table->shard_end[bucket];
        memcpy(b.gradients + from, b.weights + from, (to - from) * sizeof(float));
    }
    RANK_OK(rank, dlc_exchanger_all_gather(b.exchanger, b.gradients));
    RANK_CHECK(rank, rank->ranks == 1 ||
                         memcmp(b.gradients, b.weights, COUNT * sizeof(float)) == 0);
    fixture_close(&b);
}

TEST_RANGE(sharded, 1, 6) {
    ck_assert_int_eq(ranks_run(_i, 60, sharded_body, NULL), 0);
}

/* One update per bucket, which subtracts the reduction itself from the weights. */
static void start_update(fixture *b, const dlc_update *update, dlc_update_range *range,
                         int32_t bucket) {
    const dlc_exchange *table = b->table;
    size_t own = table->shard_begin[bucket];
    *range = (dlc_update_range){.size = sizeof *range,
                                .update = update,
                                .begin = own - begin[bucket],
                                .count = table->shard_end[bucket] - own};
    RANK_OK(b->rank, table->fused_update(table->context, bucket, range, 1));
}

static void fused_update_body(test_rank *rank, void *context) {
    const dlc_update update = test_subtraction();
    dlc_random random = dlc_random_make(13, (uint64_t)rank->rank);
    dlc_update_range ranges[BUCKETS];
    const int32_t last = BUCKETS - 1;
    fixture b;

    (void)context;
    fixture_open(&b, rank, FUSED_UPDATES);
    RANK_CHECK(rank, (b.table->fused_update != NULL) == (rank->ranks > 1));
    for (uint64_t round = 0; rank->ranks > 1 && round < ROUNDS; round++) {
        memset(b.weights, 0, begin[last] * sizeof(float));
        ranks_barrier(rank);
        for (int32_t bucket = 0; bucket < last; bucket++) {
            backward(&b, &random, round, bucket);
            start_update(&b, &update, &ranges[bucket], bucket);
        }
        RANK_CHECK(rank, b.table->fused_update(b.table->context, last, ranges, 1) ==
                             DLC_ERR_INTERNAL);
        backward(&b, &random, round, last);
        RANK_OK(rank, start(&b, last));
        check_bucket(&b, round, last);
        RANK_OK(rank, b.table->flush(b.table->context));
        for (size_t i = 0; i < begin[last]; i++)
            b.weights[i] = -b.weights[i];
        RANK_CHECK(rank,
                   reference_wrong(round, rank->ranks, 0, begin[last], b.weights) == 0);
        ranks_barrier(rank);
    }
    uint64_t bytes = dlc_exchanger_stats(b.exchanger).bytes;
    RANK_CHECK(rank, bytes == (rank->ranks > 1 ? sizeof(float) * COUNT * ROUNDS : 0));
    fixture_close(&b);
}

TEST_RANGE(fused_updates, 1, 6) {
    ck_assert_int_eq(ranks_run(_i, 60, fused_update_body, NULL), 0);
}

static void misuse_body(test_rank *rank, void *context) {
    fixture b;
    (void)context;
    fixture_open(&b, rank, PLAIN);
    RANK_OK(rank, wait(&b, 3)); /* never started: returns at once */
    RANK_CHECK(rank, start(&b, BUCKETS) == DLC_ERR_INTERNAL);
    RANK_CHECK(rank, wait(&b, -1) == DLC_ERR_INTERNAL);
    if (rank->rank == 0) {
        RANK_OK(rank, start(&b, 1)); /* the other rank is not there yet */
        RANK_CHECK(rank, start(&b, 1) == DLC_ERR_INTERNAL);
        RANK_CHECK(rank, strstr(dlc_detail(), "twice") != NULL);
    }
    ranks_barrier(rank);
    if (rank->rank == 1)
        RANK_OK(rank, start(&b, 1));
    RANK_OK(rank, wait(&b, 1));
    fixture_close(&b);
}

TEST(misuse) {
    ck_assert_int_eq(ranks_run(2, 30, misuse_body, NULL), 0);
}

/* A bucket is reduced while the train thread computes, also if that has just helped
 * with the one before: rank 0 needs both, rank 1 waits for one only. */
static void helped_body(test_rank *rank, void *context) {
    volatile char *reduced = rank->shared;
    fixture b;
    (void)context;
    fixture_open(&b, rank, PLAIN);
    for (int round = 0; round < ROUNDS; round++) {
        ranks_barrier(rank);
        if (rank->rank == 0)
            usleep(5000);
        RANK_OK(rank, start(&b, 1));
        RANK_OK(rank, start(&b, 3));
        RANK_OK(rank, wait(&b, 1));
        if (rank->rank == 0) {
            RANK_OK(rank, wait(&b, 3));
            reduced[round] = 1;
        }
        for (int i = 0; !reduced[round] && i < 2000; i++)
            usleep(1000);
        RANK_CHECK(rank, reduced[round]);
        RANK_OK(rank, wait(&b, 3));
    }
    fixture_close(&b);
}

TEST(helped) {
    ck_assert_int_eq(ranks_run(2, 30, helped_body, NULL), 0);
}

/* The exchanger is closed while a bucket is in flight that no peer will ever start. */
static void abandoned_body(test_rank *rank, void *context) {
    fixture b;
    (void)context;
    fixture_open(&b, rank, PLAIN);
    if (rank->rank == 0) {
        RANK_OK(rank, start(&b, 1));
        RANK_OK(rank, start(&b, 4));
    }
    ranks_barrier(rank);
    usleep(20000);
    fixture_close(&b);
}

TEST(abandoned) {
    ck_assert_int_eq(ranks_run(2, 30, abandoned_body, NULL), 0);
}

/* A rank dies: the exchange thread's error detail reaches the train thread. */
static void lost_peer_body(test_rank *rank, void *context) {
    fixture b;
    (void)context;
    fixture_open(&b, rank, PLAIN);
    RANK_OK(rank, start(&b, 0));
    RANK_OK(rank, wait(&b, 0));
    if (rank->rank == 1) {
        usleep(30000);
        (void)raise(SIGKILL);
    }
    RANK_OK(rank, start(&b, 1));
    RANK_OK(rank, start(&b, 4));
    if (rank->rank == 2)
        usleep(200000); /* here the exchange thread, not wait, finds the error */
    RANK_CHECK(rank, wait(&b, 4) == DLC_ERR_PEER);
    RANK_CHECK(rank, strcmp(dlc_detail(), "another rank is gone") == 0);
    RANK_CHECK(rank, wait(&b, 1) == DLC_ERR_PEER);
    RANK_CHECK(rank, start(&b, 5) == DLC_ERR_PEER);
    RANK_CHECK(rank, strcmp(dlc_detail(), "another rank is gone") == 0);
    fixture_close(&b);
}

TEST(lost_peer) {
    ck_assert_int_eq(ranks_run_losing(3, 30, 1u << 1, lost_peer_body, NULL), 0);
}

/* All ranks get the same numbers, and the zeros stay zeros. */
static void benchmark_body(test_rank *rank, void *context) {
    const dlc_device_ops *ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    double mine[5], its[5 * 3], largest = rank->rank == 1 ? 7.0 : -1.0;
    dlc_comm_cost cost;
    fixture b;
    (void)context;
    fixture_open(&b, rank, PLAIN);
    RANK_OK(rank, dlc_comm_benchmark(b.comm, ops, b.device, b.gradients, COUNT, &cost));
    mine[0] = cost.latency;
    mine[1] = cost.bandwidth;
    mine[2] = cost.in_place;
    RANK_OK(rank, dlc_comm_benchmark_memory(b.comm, ops, b.device, b.gradients, COUNT,
                                            &mine[3]));
    RANK_OK(rank, dlc_comm_max_seconds(b.comm, &largest));
    RANK_CHECK(rank, largest == 7.0);
    mine[4] = largest;
    RANK_OK(rank, dlc_comm_oob_all_gather(b.comm, mine, sizeof mine, its));
    for (int i = 0; i < 5 * rank->ranks; i++)
        RANK_CHECK(rank, its[i] > 0 && its[i] == mine[i % 5]);
    for (size_t i = 0; i < COUNT; i++)
        RANK_CHECK(rank, b.gradients[i] == 0);
    /* Fewer elements than the benchmark would use, down to one. */
    RANK_OK(rank, dlc_comm_benchmark(b.comm, ops, b.device, b.gradients, 1, &cost));
    fixture_close(&b);
}

TEST_RANGE(benchmark, 2, 4) {
    ck_assert_int_eq(ranks_run(_i, 60, benchmark_body, NULL), 0);
}

TEST(hidden_fraction) {
    dlc_exchange_stats stats = {0};
    ck_assert_double_eq(dlc_exchange_hidden_fraction(&stats), 0.0);
    stats = (dlc_exchange_stats){.busy = 4.0, .waited = 1.0};
    ck_assert_double_eq(dlc_exchange_hidden_fraction(&stats), 0.75);
    stats.waited = 5.0;
    ck_assert_double_eq(dlc_exchange_hidden_fraction(&stats), 0.0);
}

/* With one rank every call succeeds and changes nothing. */
TEST(one_rank) {
    static const size_t halves[] = {0, 2, 4};
    float gradients[4] = {1, 2, 3, 4};
    dlc_comm_args args = {.ranks = 1};
    dlc_comm *comm = NULL;
    dlc_exchanger *exchanger = NULL;

    ck_assert_int_eq(dlc_comm_open(&args, &comm), DLC_OK);
    dlc_exchange_args exchange = {
        .comm = comm, .gradients = gradients, .begin = halves, .buckets = 2};
    ck_assert_int_eq(dlc_exchanger_open(&exchange, &exchanger), DLC_OK);
    const dlc_exchange *table = dlc_exchanger_table(exchanger);
    ck_assert_int_eq(table->ranks, 1);
    ck_assert_int_eq(table->rank, 0);
    ck_assert_int_eq(table->buckets, 2);
    ck_assert_uint_eq(table->bucket_begin[1], 2);
    for (int32_t b = 0; b < 2; b++) {
        ck_assert_int_eq(table->start(table->context, b), DLC_OK);
        ck_assert_int_eq(table->wait(table->context, b), DLC_OK);
    }
    ck_assert_int_eq(table->start(table->context, 2), DLC_ERR_INTERNAL);
    ck_assert_int_eq(table->wait(table->context, -1), DLC_ERR_INTERNAL);
    ck_assert_float_eq(gradients[2], 3);
    ck_assert_uint_eq(dlc_exchanger_stats(exchanger).bytes, 0);
    dlc_exchanger_close(exchanger);
    dlc_comm_close(comm);
    dlc_exchanger_close(NULL);
}
