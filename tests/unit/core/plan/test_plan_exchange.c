/* Tests the costs of single collectives (core/plan/exchange.c), in cases that can be
 * computed by hand. */
#include <math.h>
#include <string.h>

#include "plan/exchange.h"
#include "support/test.h"

/* 1 GB/s and 1 ms inside, 100 MB/s and 10 ms between. */
static dlc_plan_cluster cluster_of(int32_t nodes, int32_t each) {
    return (dlc_plan_cluster){.nodes = nodes,
                              .ranks_per_node = each,
                              .inside = {.latency = 1e-3, .bandwidth = 1e9},
                              .between = {.latency = 1e-2, .bandwidth = 1e8}};
}

static void ck_near(double found, double expected) {
    ck_assert_msg(fabs(found - expected) <= 1e-9 * fabs(expected) + 1e-15,
                  "%.12g is not %.12g", found, expected);
}

TEST(one_rank_exchanges_nothing) {
    dlc_plan_cluster one = cluster_of(1, 1);
    for (dlc_plan_algorithm way = 0; way < DLC_PLAN_ALGORITHMS; way++)
        ck_near(dlc_plan_all_reduce(&one, way, 1e9), 0);
    ck_near(dlc_plan_all_gather(&one, 1e9), 0);
    ck_near(dlc_plan_all_to_all(&one, 1e9), 0);
}

/* Two ranks: each sends half of the buffer, twice. */
TEST(two_ranks) {
    dlc_plan_cluster two = cluster_of(1, 2);
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_DIRECT, 1e9), 1 + 2e-3);
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_RING, 1e9), 1 + 2e-3);
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_TREE, 1e9), 2 + 2e-3);
    ck_near(dlc_plan_all_gather(&two, 1e9), 0.5 + 1e-3);
    ck_near(dlc_plan_all_to_all(&two, 1e9), 0.5 + 1e-3);
}

TEST(half_duplex_takes_twice_as_long) {
    dlc_plan_cluster two = cluster_of(1, 2);
    two.inside.half_duplex = 1;
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_DIRECT, 1e9), 2 + 2e-3);
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_RING, 1e9), 2 + 2e-3);
    /* A tree uses one direction at a time in any case. */
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_TREE, 1e9), 2 + 2e-3);
}

/* Two machines of four ranks: 3/4 of the buffer twice inside, and half of it twice
 * through each machine's adapter. */
TEST(levels_add_up) {
    dlc_plan_cluster c = cluster_of(2, 4);
    c.inside.latency = c.between.latency = 0;
    ck_near(dlc_plan_all_reduce(&c, DLC_PLAN_DIRECT, 1e8), 2 * 0.075 + 2 * 0.5);
    ck_near(dlc_plan_all_reduce(&c, DLC_PLAN_SERVER, 1e8), 2 * 0.3 + 2 * 0.5);
    ck_near(dlc_plan_all_reduce(&c, DLC_PLAN_RING, 1e8), 2 * 7 * 0.125);
    ck_near(dlc_plan_all_reduce(&c, DLC_PLAN_TREE, 1e8), 2 * (2 * 0.1 + 1));
    /* Half of what four ranks send goes to the other machine. */
    ck_near(dlc_plan_all_to_all(&c, 1e8), 0.0375 + 4 * 0.5);
}

TEST(additions_take_time) {
    dlc_plan_cluster two = cluster_of(1, 2);
    two.sum_bandwidth = 1e9;
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_DIRECT, 1e9), 1.5 + 2e-3);
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_RING, 1e9), 1.5 + 2e-3);
    ck_near(dlc_plan_all_reduce(&two, DLC_PLAN_TREE, 1e9), 3 + 2e-3);
}

/* A ring's time approaches that of twice the buffer; a tree's grows with its levels. */
TEST(many_ranks) {
    dlc_plan_cluster many = cluster_of(1024, 1);
    many.between.latency = 0;
    ck_near(dlc_plan_all_reduce(&many, DLC_PLAN_RING, 1e8), 2 * (1 - 1.0 / 1024));
    ck_near(dlc_plan_all_reduce(&many, DLC_PLAN_DIRECT, 1e8), 2 * (1 - 1.0 / 1024));
    ck_near(dlc_plan_all_reduce(&many, DLC_PLAN_TREE, 1e8), 20);
}

TEST(more_is_never_faster) {
    for (dlc_plan_algorithm way = 0; way < DLC_PLAN_ALGORITHMS; way++) {
        double before = 0;
        for (int32_t nodes = 1; nodes <= 64; nodes *= 2) {
            dlc_plan_cluster c = cluster_of(nodes, 4);
            double now = dlc_plan_all_reduce(&c, way, 1e8);
            ck_assert_double_gt(now, before);
            ck_assert_double_gt(dlc_plan_all_reduce(&c, way, 2e8), now);
            before = now;
        }
    }
}

/* Links made from a measurement reproduce it. */
TEST(links_from_all_reduce) {
    static const int32_t shapes[][2] = {{1, 2}, {1, 8}, {4, 1}, {3, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        dlc_plan_cluster c = {
            .nodes = shapes[i][0], .ranks_per_node = shapes[i][1], .sum_bandwidth = 5};
        dlc_plan_links_from_all_reduce(50e-6, 4e9, &c);
        ck_near(dlc_plan_all_reduce(&c, DLC_PLAN_DIRECT, 0), 50e-6);
        ck_near(dlc_plan_all_reduce(&c, DLC_PLAN_DIRECT, 4e9), 1 + 50e-6);
    }
}

/* The bucket size minimizes n / bucket * cost + bucket / bandwidth. */
TEST(bucket_size_is_optimal) {
    dlc_plan_cluster two = cluster_of(1, 2);
    double bytes = 1e9, best = dlc_plan_bucket_bytes(&two, DLC_PLAN_DIRECT, bytes);
    double cost[3];
    ck_near(best, sqrt(1e9 * 2e-3 * 1e9));
    for (int i = 0; i < 3; i++) {
        double bucket = best * (0.5 + 0.5 * i);
        cost[i] = bytes / bucket * 2e-3 + bucket / 1e9;
    }
    ck_assert_double_lt(cost[1], cost[0]);
    ck_assert_double_lt(cost[1], cost[2]);
    ck_near(dlc_plan_bucket_bytes(&two, DLC_PLAN_DIRECT, 0), 65536);
    two.handover = 6e-3; /* an additional cost per bucket */
    ck_near(dlc_plan_bucket_bytes(&two, DLC_PLAN_DIRECT, bytes),
            sqrt(1e9 * 8e-3 * 1e9));
}

TEST(bad_numbers_are_refused) {
    dlc_plan_cluster c = cluster_of(2, 2);
    ck_assert_int_eq(dlc_plan_check(&c), DLC_OK);
    c.between.bandwidth = 0;
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "between machines"));
    c.nodes = 1; /* then the link isn't used */
    ck_assert_int_eq(dlc_plan_check(&c), DLC_OK);
    c.inside.latency = (double)NAN;
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
    c = cluster_of(0, 2);
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
    c = cluster_of(1 << 20, 1 << 20);
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
    c = cluster_of(1, 2);
    c.update_bandwidth = -1;
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
    c.update_bandwidth = (double)INFINITY;
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
    c = cluster_of(1, 2);
    c.inside.latency = (double)INFINITY;
    ck_assert_int_eq(dlc_plan_check(&c), DLC_ERR_CONFIG);
}
