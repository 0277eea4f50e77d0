/* Tests how the gradient arena is cut into buckets, and the cost model that chooses
 * their size and sharded updates. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plan/buckets.h"
#include "support/test.h"

static size_t *begin;
static int32_t buckets;

static void plan(const size_t *ends, size_t segments, size_t target) {
    ck_assert_int_eq(dlc_plan_arena_buckets(ends, segments, target, &begin, &buckets),
                     DLC_OK);
}

TEST(closes_when_full) {
    static const size_t ends[] = {10, 20, 120, 130, 230};
    static const size_t want[] = {0, 120, 230};
    plan(ends, 5, 400);
    ck_assert_int_eq(buckets, 2);
    ck_assert(memcmp(begin, want, sizeof want) == 0);
    dlc_free(begin);
}

TEST(remainder_is_a_bucket) {
    static const size_t ends[] = {100, 200, 205};
    static const size_t want[] = {0, 100, 200, 205};
    plan(ends, 3, 400);
    ck_assert_int_eq(buckets, 3);
    ck_assert(memcmp(begin, want, sizeof want) == 0);
    dlc_free(begin);
}

TEST(one_per_segment_or_one_for_all) {
    static const size_t ends[] = {1, 2, 3};
    plan(ends, 3, 0);
    ck_assert_int_eq(buckets, 3);
    dlc_free(begin);
    plan(ends, 3, SIZE_MAX);
    ck_assert_int_eq(buckets, 1);
    ck_assert_uint_eq(begin[1], 3);
    dlc_free(begin);
}

/* 1 MB is cut into buckets of 300 KB or a little more, at whole cache lines. */
TEST(cuts_large_segments) {
    static const size_t ends[] = {250000, 250010};
    plan(ends, 2, 300000);
    ck_assert_int_eq(buckets, 4);
    ck_assert_uint_eq(begin[3], 250000);
    for (int32_t b = 0; b < 3; b++)
        ck_assert(begin[b] % 16 == 0 && begin[b + 1] - begin[b] >= 75000);
    ck_assert_uint_eq(begin[4], 250010);
    dlc_free(begin);
}

TEST(no_segments) {
    plan(NULL, 0, 100);
    ck_assert_int_eq(buckets, 0);
    ck_assert_uint_eq(begin[0], 0);
    dlc_free(begin);
}

TEST(descending_ends) {
    static const size_t ends[] = {100, 50, 120};
    ck_assert_int_eq(dlc_plan_arena_buckets(ends, 3, 4, &begin, &buckets),
                     DLC_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "segment 1"));
}

TEST(no_memory) {
    static const size_t ends[] = {100, 150};
    (void)dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_plan_arena_buckets(ends, 2, 4, &begin, &buckets),
                     DLC_ERR_NOMEM);
    (void)dlc_memory_fail_at(0);
}

static size_t best_of(double latency, double bandwidth, double bytes) {
    return (size_t)dlc_plan_best_bucket(latency + DLC_PLAN_HANDOVER, bandwidth, bytes);
}

/* The best size balances the transfer and the cost per bucket: latency and 200 us. */
TEST(buckets_by_cost) {
    ck_assert_uint_eq(best_of(25e-6, 1e9, 1e8), 4743416);
    ck_assert_uint_eq(best_of(1e-3, 1e8, 1e8), 3464101);
    ck_assert_uint_eq(best_of(1e-3, 1e8, 1000), 65536);
}

/* 1.7 MB are reduced before another thread could start, so there is one bucket. */
TEST(one_bucket_if_fast) {
    ck_assert_uint_gt(best_of(3e-7, 60e9, 1.7e6), 1700000);
}

/* Two ranks: all-gathering weights takes half of an all-reduce and saves half an
 * update. */
TEST(sharding_by_cost) {
    ck_assert_int_eq(dlc_plan_favors_sharding(10e9, 5e9, 2), 1);
    ck_assert_int_eq(dlc_plan_favors_sharding(10e9, 20e9, 2), 0);
    ck_assert_int_eq(dlc_plan_favors_sharding(10e9, 12e9, 2), 0);
    ck_assert_int_eq(dlc_plan_favors_sharding(10e9, 12e9, 4), 1); /* saves more */
}

/* Shards are equal and whole pieces; the remainder and the control words are the last
 * bucket. */
TEST(cuts_shards) {
    size_t many[8] = {0, 10, 700, 1000, 1500, 1620};
    const size_t expected[] = {0, 600, 900, 1500, 1620};
    int32_t count = 5;
    dlc_plan_cut_shards(300, 1604, many, &count);
    ck_assert_int_eq(count, 4);
    ck_assert_mem_eq(many, expected, sizeof expected);
    size_t small[4] = {0, 100, 116}; /* less than a piece for each rank */
    count = 2;
    dlc_plan_cut_shards(300, 100, small, &count);
    ck_assert_int_eq(count, 1);
    ck_assert_uint_eq(small[1], 116);
    size_t whole[4] = {0, 616}; /* one bucket becomes two */
    count = 1;
    dlc_plan_cut_shards(300, 600, whole, &count);
    ck_assert_int_eq(count, 2);
    ck_assert_uint_eq(whole[1], 600);
    ck_assert_uint_eq(whole[2], 616);
}
