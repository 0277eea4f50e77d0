/* Steps of data parallelism: what is hidden and what is not. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "plan/buckets.h"
#include "plan/exchange.h"

enum { LAYERS = 3 };

/* Forward takes 1 s a layer, backward 2 s; 100 MB each. */
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

/* A sum of 100 MB takes `seconds` on two ranks. */
static dlc_plan_cluster cluster_of(double seconds) {
    return (dlc_plan_cluster){
        .nodes = 2, .each = 1, .between = {.bandwidth = 1e8 / seconds}};
}

static void ck_near(double found, double expected) {
    ck_assert_msg(fabs(found - expected) <= 1e-6 * fabs(expected) + 1e-12,
                  "%.12g is not %.12g", found, expected);
}

static dlc_plan_step step_of(const dlc_plan_cluster *cluster,
                             dlc_plan_overlap overlap) {
    /* A bucket a layer. */
    const dlc_plan_exchange exchange = {.overlap = overlap, .bucket = 1e8};
    dlc_plan_step step;
    dlc_status status = dlc_plan_step_of(net, LAYERS, NULL, cluster, &exchange, 1,
                                         &step);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return step;
}

START_TEST(nothing_hidden) {
    dlc_plan_cluster c = cluster_of(1);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_NONE);
    ck_near(step.forward, 3);
    ck_near(step.backward, 6);
    ck_near(step.exchange, 3);
    ck_near(step.seconds, 12);
    ck_near(step.exposed, 3);
    ck_near(step.bytes, 3e8);
}
END_TEST

/* Sums that are faster than backward: only the last one shows. */
START_TEST(last_bucket_is_exposed) {
    dlc_plan_cluster c = cluster_of(1);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_assert_int_eq(step.buckets, 3);
    ck_near(step.seconds, 10);
    ck_near(step.exposed, 1);
}
END_TEST

/* Sums that are slower: they begin with the first bucket and never pause. */
START_TEST(slow_sums_are_a_chain) {
    dlc_plan_cluster c = cluster_of(4);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 3 + 2 + 3 * 4);
}
END_TEST

/* The next forward begins with the first layer's sum. Filled at 5, 7 and 9 s: c goes
 * first (till 9), then a, filled last (till 13), then b (till 17). Forward of the next
 * step: a at 13, b at 17, c: 3 layers until 19. */
START_TEST(ahead_goes_first_things_first) {
    dlc_plan_cluster c = cluster_of(4);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_AHEAD);
    ck_near(step.seconds, 19 - 3);
    dlc_plan_step waits = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_assert_double_lt(step.seconds, waits.seconds);
}
END_TEST

/* Half of an all-reduce is behind backward, the last one behind updates; half is behind
 * nothing. Updates are halved. */
START_TEST(shards) {
    dlc_plan_cluster c = cluster_of(1);
    c.update = 1e8;
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_SHARDS);
    ck_near(step.update, 1.5);
    ck_near(step.seconds, 9 + 1.5 + 1.5);
    dlc_plan_step all = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(all.update, 3);
    ck_near(all.seconds, 9 + 3);
    dlc_plan_step best = step_of(&c, DLC_PLAN_OVERLAP_BEST);
    dlc_plan_step ahead = step_of(&c, DLC_PLAN_OVERLAP_AHEAD);
    ck_near(best.seconds, fmin(fmin(step.seconds, all.seconds), ahead.seconds));
}
END_TEST

/* Two ranks of one machine move 7/10 of an update's bytes for sums, updates and all:
 * behind backward, but for the last bucket's, and chosen where it can be. */
START_TEST(one_pass) {
    dlc_plan_cluster c = {.nodes = 1,
                          .each = 2,
                          .inside = {.bandwidth = 1e9},
                          .update = 1e8,
                          .one_pass = 1};
    ck_near(dlc_plan_pass(&c, 1e8), 0.7);
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_PASS);
    ck_near(step.exchange, 2.1);
    ck_near(step.update, 0);
    ck_near(step.seconds, 9 + 0.7);
    c.stolen = 1;
    ck_near(step_of(&c, DLC_PLAN_OVERLAP_PASS).seconds, 9 + 2.1);
    ck_assert_int_eq(step_of(&c, DLC_PLAN_OVERLAP_BEST).overlap, DLC_PLAN_OVERLAP_PASS);
    c.each = 4; /* 11 moves of a quarter */
    ck_near(dlc_plan_pass(&c, 1e8), 0.55);
}
END_TEST

/* Over a network, or where memory is not shared, there is no such way. */
START_TEST(no_pass) {
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_PASS};
    dlc_plan_cluster c = cluster_of(1);
    dlc_plan_step step;
    c.update = 1e8;
    for (c.one_pass = 0; c.one_pass < 2; c.one_pass++) {
        ck_near(dlc_plan_pass(&c, 1e8), 0);
        ck_assert_int_ne(step_of(&c, DLC_PLAN_OVERLAP_BEST).overlap,
                         DLC_PLAN_OVERLAP_PASS);
        ck_assert_int_eq(dlc_plan_step_of(net, LAYERS, NULL, &c, &exchange, 1, &step),
                         DLC_ERR_CONFIG);
    }
    c = (dlc_plan_cluster){
        .nodes = 1, .each = 2, .inside = {.bandwidth = 1e9}, .update = 1e8};
    ck_near(dlc_plan_pass(&c, 1e8), 0);
}
END_TEST

START_TEST(stolen_time_is_not_hidden) {
    dlc_plan_cluster c = cluster_of(1);
    c.stolen = 1;
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 12);
    c.stolen = 0.5;
    step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 11);
}
END_TEST

START_TEST(handing_over_costs) {
    dlc_plan_cluster c = cluster_of(1);
    c.handover = 0.25;
    dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BACKWARD);
    ck_near(step.seconds, 10.5); /* of the last bucket there is none */
}
END_TEST

START_TEST(one_rank_alone) {
    dlc_plan_cluster c = {
        .nodes = 1, .each = 1, .handover = 1, .stolen = 1, .update = 3e8};
    c.rest = 0.5;
    for (dlc_plan_overlap overlap = 0; overlap <= DLC_PLAN_OVERLAP_BEST; overlap++) {
        if (overlap == DLC_PLAN_OVERLAP_PASS)
            continue; /* that takes two */
        dlc_plan_step step = step_of(&c, overlap);
        ck_near(step.seconds, 10.5);
        ck_near(step.exposed, 0);
    }
}
END_TEST

/* More ranks of the same kind never give less in all, and never more than their number;
 * a link without end hides everything. */
START_TEST(limits_of_scaling) {
    double last = 0;
    for (int32_t ranks = 1; ranks <= 256; ranks *= 2) {
        dlc_plan_cluster c = {
            .nodes = ranks, .each = 1, .between = {1e-4, 1e9, 0}, .handover = 1e-4};
        dlc_plan_step step = step_of(&c, DLC_PLAN_OVERLAP_BEST);
        double speed = ranks / step.seconds;
        ck_assert_double_gt(speed, last);
        ck_assert_double_le(speed, ranks / 9.0 + 1e-9);
        last = speed;
    }
    dlc_plan_cluster fast = {.nodes = 256, .each = 1, .between = {0, 1e18, 0}};
    ck_near(step_of(&fast, DLC_PLAN_OVERLAP_BEST).seconds, 9);
}
END_TEST

START_TEST(layers_of_ones_own_are_not_exchanged) {
    dlc_plan_cluster c = cluster_of(1);
    const dlc_plan_extra extra[LAYERS] = {
        {0}, {0}, {.alone = 1, .parameter_bytes = 5e7, .forward = 0.5, .backward = 1}};
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
END_TEST

/* Half the bytes in half precision. */
START_TEST(scaled_bytes) {
    dlc_plan_cluster c = cluster_of(1);
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_NONE, .scale = 0.5};
    dlc_plan_step step;
    ck_assert_int_eq(dlc_plan_step_of(net, LAYERS, NULL, &c, &exchange, 1, &step),
                     DLC_OK);
    ck_near(step.bytes, 1.5e8);
    ck_near(step.seconds, 10.5);
}
END_TEST

/* Whole layers, from the last on; what holds several times the target in as many. */
START_TEST(buckets_of_whole_layers) {
    static const double bytes[] = {10, 0, 350, 60, 0, 60};
    dlc_plan_buckets buckets = {.count = 0};
    ck_assert_int_eq(dlc_plan_buckets_cut(bytes, 6, 100, &buckets), DLC_OK);
    ck_assert_uint_eq(buckets.count, 5);
    ck_assert_uint_eq(buckets.piece[0].first, 3);
    ck_assert_uint_eq(buckets.piece[0].last, 5);
    ck_near(buckets.piece[0].bytes, 120);
    for (size_t k = 1; k <= 3; k++) {
        ck_assert_uint_eq(buckets.piece[k].first, 2);
        ck_near(buckets.piece[k].bytes, 350.0 / 3);
    }
    ck_assert_uint_eq(buckets.piece[4].last, 0);
    ck_near(buckets.piece[4].bytes, 10);
    dlc_plan_buckets_free(&buckets);
    ck_assert_int_eq(dlc_plan_buckets_cut(bytes, 0, 100, &buckets), DLC_OK);
    ck_assert_uint_eq(buckets.count, 0);
    dlc_plan_buckets_free(&buckets);
}
END_TEST

START_TEST(without_memory) {
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
END_TEST

int main(void) {
    Suite *suite = suite_create("plan_step");
    TCase *cases = tcase_create("plan_step");
    tcase_add_test(cases, nothing_hidden);
    tcase_add_test(cases, last_bucket_is_exposed);
    tcase_add_test(cases, slow_sums_are_a_chain);
    tcase_add_test(cases, ahead_goes_first_things_first);
    tcase_add_test(cases, shards);
    tcase_add_test(cases, one_pass);
    tcase_add_test(cases, no_pass);
    tcase_add_test(cases, stolen_time_is_not_hidden);
    tcase_add_test(cases, handing_over_costs);
    tcase_add_test(cases, one_rank_alone);
    tcase_add_test(cases, limits_of_scaling);
    tcase_add_test(cases, layers_of_ones_own_are_not_exchanged);
    tcase_add_test(cases, scaled_bytes);
    tcase_add_test(cases, buckets_of_whole_layers);
    tcase_add_test(cases, without_memory);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
