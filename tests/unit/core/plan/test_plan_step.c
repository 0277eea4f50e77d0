/* Tests simulated data-parallel steps (core/plan/step.c): what overlap hides. */
#include <math.h>

#include "base/memory.h"
#include "plan/buckets.h"
#include "plan/exchange.h"
#include "support/test.h"

enum { LAYERS = 3 };

/* Each layer takes 1 s forward and 2 s backward, and has 100 MB. */
static const dlc_plan_layer net[LAYERS] = {
    {.name = "a",
     .parameter_bytes = 1e8,
     .out_bytes = 1e6,
     .forward = {1, 0},
     .backward = {2, 0}},
    {.name = "b",
     .parameter_bytes = 1e8,
     .out_bytes = 2e6,
     .forward = {1, 0},
     .backward = {2, 0}},
    {.name = "c",
     .parameter_bytes = 1e8,
     .out_bytes = 3e6,
     .forward = {1, 0},
     .backward = {2, 0}},
};

/* Two ranks on which an all-reduce of 100 MB takes `seconds`. */
static dlc_plan_cluster cluster_of(double seconds) {
    return (dlc_plan_cluster){
        .nodes = 2, .ranks_per_node = 1, .between = {.bandwidth = 1e8 / seconds}};
}

static void ck_near(double found, double expected) {
    ck_assert_msg(fabs(found - expected) <= 1e-6 * fabs(expected) + 1e-12,
                  "%.12g is not %.12g", found, expected);
}

static dlc_plan_step step_of(const dlc_plan_cluster *cluster,
                             dlc_plan_overlap overlap) {
    /* One bucket per layer. */
    const dlc_plan_exchange exchange = {.overlap = overlap, .bucket = 1e8};
    dlc_plan_step step;
    dlc_status status = dlc_plan_step_of(net, LAYERS, NULL, cluster, &exchange, 1,
                                         &step);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return step;
}

TEST(nothing_hidden) {
    dlc_plan_cluster c = cluster_of(1);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_NONE);
    ck_near(step.forward, 3);
    ck_near(step.backward, 6);
    ck_near(step.exchange, 3);
    ck_near(step.seconds, 12);
    ck_near(step.exposed, 3);
    ck_near(step.bytes, 3e8);
}

/* If reductions are faster than backward only the last one is exposed. */
TEST(last_bucket_is_exposed) {
    dlc_plan_cluster c = cluster_of(1);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_assert_int_eq(step.buckets, 3);
    ck_near(step.seconds, 10);
    ck_near(step.exposed, 1);
}

/* If they are slower they run without pause from the first bucket on. */
TEST(slow_reductions_are_a_chain) {
    dlc_plan_cluster c = cluster_of(4);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 3 + 2 + 3 * 4);
}

/* The next forward begins after the first layer's reduction. Buckets are filled at 5, 7
 * and 9 s: c is reduced first (until 9), then a, which was filled last (until 13), then
 * b (until 17). The next forward runs a at 13, b at 17 and c, until 19. */
TEST(overlap_forward_reduces_newest_first) {
    dlc_plan_cluster c = cluster_of(4);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_FORWARD);
    ck_near(step.seconds, 19 - 3);
    dlc_plan_step waits = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_assert_double_lt(step.seconds, waits.seconds);
}

/* The reduce-scatters overlap backward, the all-gathers nothing. Updates are halved. */
TEST(sharded_updates) {
    dlc_plan_cluster c = cluster_of(1);
    c.update_bandwidth = 1e8;
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_SHARDED);
    ck_near(step.update, 1.5);
    ck_near(step.seconds, 9 + 1.5 + 1.5);
    dlc_plan_step all = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(all.update, 3);
    ck_near(all.seconds, 9 + 3);
    dlc_plan_step best = step_of(&c, DLC_PLAN_OVERLAP_BEST);
    dlc_plan_step ahead = step_of(&c, DLC_PLAN_OVERLAP_FORWARD);
    ck_near(best.seconds, fmin(fmin(step.seconds, all.seconds), ahead.seconds));
}

/* On two ranks of one machine a fused update with one slot moves 7/10 of an update's
 * bytes. It overlaps backward, except for the last bucket, and is chosen if possible.
 */
TEST(fused_updates) {
    dlc_plan_cluster c = {.nodes = 1,
                          .ranks_per_node = 2,
                          .inside = {.bandwidth = 1e9},
                          .update_bandwidth = 1e8,
                          .copies = 2,
                          .fused_update = 1};
    ck_near(dlc_plan_fused_update(&c, 1e8), 0.7);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_FUSED);
    ck_near(step.exchange, 2.1);
    ck_near(step.update, 0);
    ck_near(step.seconds, 9 + 0.7);
    c.interference = 1;
    ck_near(step_of(&c, DLC_PLAN_OVERLAP_FUSED).seconds, 9 + 2.1);
    ck_assert_int_eq(step_of(&c, DLC_PLAN_OVERLAP_BEST).overlap,
                     DLC_PLAN_OVERLAP_FUSED);
    c.ranks_per_node = 4; /* 11 moves of a quarter of the bytes */
    ck_near(dlc_plan_fused_update(&c, 1e8), 0.55);
    c.copies = 3; /* a second slot: 13 moves, an update has 7 */
    ck_near(dlc_plan_fused_update(&c, 1e8), 13.0 / 7 / 4);
    c.copies = 1; /* no slot: 9 moves, an update has 3 */
    ck_near(dlc_plan_fused_update(&c, 1e8), 9.0 / 3 / 4);
}

/* There are no fused updates over a network, or without access to each other's memory.
 */
TEST(no_fused_updates) {
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_FUSED};
    dlc_plan_cluster c = cluster_of(1);
    dlc_plan_step step;
    c.update_bandwidth = 1e8;
    for (c.fused_update = 0; c.fused_update < 2; c.fused_update++) {
        ck_near(dlc_plan_fused_update(&c, 1e8), 0);
        ck_assert_int_ne(step_of(&c, DLC_PLAN_OVERLAP_BEST).overlap,
                         DLC_PLAN_OVERLAP_FUSED);
        ck_assert_int_eq(dlc_plan_step_of(net, LAYERS, NULL, &c, &exchange, 1, &step),
                         DLC_ERR_CONFIG);
    }
    c = (dlc_plan_cluster){.nodes = 1,
                           .ranks_per_node = 2,
                           .inside = {.bandwidth = 1e9},
                           .update_bandwidth = 1e8};
    ck_near(dlc_plan_fused_update(&c, 1e8), 0);
}

TEST(interference_is_exposed) {
    dlc_plan_cluster c = cluster_of(1);
    c.interference = 1;
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 12);
    c.interference = 0.5;
    step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 11);
}

TEST(handover_costs) {
    dlc_plan_cluster c = cluster_of(1);
    c.handover = 0.25;
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 10.5); /* not for the last bucket */
}

TEST(one_rank_alone) {
    dlc_plan_cluster c = {.nodes = 1,
                          .ranks_per_node = 1,
                          .handover = 1,
                          .interference = 1,
                          .update_bandwidth = 3e8};
    c.rest = 0.5;
    for (dlc_plan_overlap overlap = 0; overlap <= DLC_PLAN_OVERLAP_BEST; overlap++) {
        if (overlap == DLC_PLAN_OVERLAP_FUSED)
            continue; /* that needs two ranks */
        dlc_plan_step step = step_of(&c, overlap);
        ck_near(step.seconds, 10.5);
        ck_near(step.exposed, 0);
    }
}

/* More equal ranks never have a lower total throughput, and never a higher speed-up
 * than their number; an infinitely fast link has no exposed time. */
TEST(limits_of_scaling) {
    double last = 0;
    for (int32_t ranks = 1; ranks <= 256; ranks *= 2) {
        dlc_plan_cluster c = {.nodes = ranks,
                              .ranks_per_node = 1,
                              .between = {1e-4, 1e9, 0},
                              .handover = 1e-4};
        dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BEST);
        double speed = ranks / step.seconds;
        ck_assert_double_gt(speed, last);
        ck_assert_double_le(speed, ranks / 9.0 + 1e-9);
        last = speed;
    }
    dlc_plan_cluster fast = {
        .nodes = 256, .ranks_per_node = 1, .between = {0, 1e18, 0}};
    ck_near(step_of(&fast, DLC_PLAN_OVERLAP_BEST).seconds, 9);
}

TEST(split_layers_are_not_exchanged) {
    dlc_plan_cluster c = cluster_of(1);
    const dlc_plan_extra extra[LAYERS] = {
        {0},
        {0},
        {.is_split = 1, .parameter_bytes = 5e7, .forward = 0.5, .backward = 1}};
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_NONE};
    dlc_plan_step step;
    ck_assert_int_eq(dlc_plan_step_of(net, LAYERS, extra, &c, &exchange, 1, &step),
                     DLC_OK);
    ck_near(step.bytes, 2e8);
    ck_near(step.seconds, 3.5 + 7 + 2);
    c.copies = 2;
    ck_near(dlc_plan_memory(net, LAYERS, NULL, &c, 10), 3 * 3e8 + 10 * 6e6);
    ck_near(dlc_plan_memory(net, LAYERS, extra, &c, 10), 3 * 2.5e8 + 10 * 6e6);
}

/* With float16 half as many bytes are exchanged. */
TEST(scaled_bytes) {
    dlc_plan_cluster c = cluster_of(1);
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_NONE, .scale = 0.5};
    dlc_plan_step step;
    ck_assert_int_eq(dlc_plan_step_of(net, LAYERS, NULL, &c, &exchange, 1, &step),
                     DLC_OK);
    ck_near(step.bytes, 1.5e8);
    ck_near(step.seconds, 10.5);
}

/* Buckets are whole layers, from the last one on; larger ones are cut. */
TEST(buckets_of_whole_layers) {
    static const double bytes[] = {10, 0, 350, 60, 0, 60};
    dlc_plan_buckets buckets = {.count = 0};
    ck_assert_int_eq(dlc_plan_buckets_cut(bytes, 6, 100, &buckets), DLC_OK);
    ck_assert_uint_eq(buckets.count, 5);
    ck_assert_uint_eq(buckets.bucket[0].first, 3);
    ck_assert_uint_eq(buckets.bucket[0].last, 5);
    ck_near(buckets.bucket[0].bytes, 120);
    for (size_t k = 1; k <= 3; k++) {
        ck_assert_uint_eq(buckets.bucket[k].first, 2);
        ck_near(buckets.bucket[k].bytes, 350.0 / 3);
    }
    ck_assert_uint_eq(buckets.bucket[4].last, 0);
    ck_near(buckets.bucket[4].bytes, 10);
    dlc_plan_buckets_free(&buckets);
    ck_assert_int_eq(dlc_plan_buckets_cut(bytes, 0, 100, &buckets), DLC_OK);
    ck_assert_uint_eq(buckets.count, 0);
    dlc_plan_buckets_free(&buckets);
}

TEST(out_of_memory) {
    dlc_plan_cluster c = cluster_of(1);
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_BEST};
    dlc_plan_step step = {.seconds = -1};
    dlc_status status = DLC_ERR_NOMEM;
    size_t n = 1;
    for (; n < 100 && status == DLC_ERR_NOMEM; n++) {
        dlc_memory_fail_at(n);
        status = dlc_plan_step_of(net, LAYERS, NULL, &c, &exchange, 1, &step);
        dlc_memory_fail_at(0);
        if (status != DLC_OK)
            ck_assert_double_eq(step.seconds, -1);
    }
    ck_assert_int_eq(status, DLC_OK);
    ck_assert_uint_gt(n, 5);
}
