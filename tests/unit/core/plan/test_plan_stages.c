/* Tests pipeline stages (core/plan/stages.c): where nets are cut, and how long a
 * pipeline takes, compared with cases computed by hand and with trying every cut. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "plan/stages.h"
#include "support/test.h"

enum { MOST = 9 };

static const dlc_plan_link free_link = {.latency = 0, .bandwidth = 1e18};

/* Layers whose forward takes the given seconds, and backward twice that. */
static void make(const double *work, size_t layers, dlc_plan_layer *layer) {
    for (size_t i = 0; i < layers; i++)
        layer[i] = (dlc_plan_layer){.name = "x",
                                    .parameter_bytes = 100,
                                    .out_bytes = 10,
                                    .cut_bytes = 10,
                                    .forward = {0, work[i]},
                                    .backward = {0, 2 * work[i]}};
}

static void ck_near(double found, double expected) {
    ck_assert_msg(fabs(found - expected) <= 1e-9 * fabs(expected) + 1e-12,
                  "%.12g is not %.12g", found, expected);
}

TEST(balanced) {
    static const double work[] = {1, 1, 2, 4, 1, 1, 2};
    dlc_plan_layer layer[7];
    dlc_plan_stage stage[3];
    make(work, 7, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 7, &free_link, 1, 3, NULL, stage),
                     DLC_OK);
    ck_assert_uint_eq(stage[0].first, 0);
    ck_assert_uint_eq(stage[0].end, 3);
    ck_assert_uint_eq(stage[1].end, 4);
    ck_assert_uint_eq(stage[2].end, 7);
    ck_near(stage[1].forward, 4);
    ck_near(stage[1].backward, 8);
    ck_near(stage[2].parameter_bytes, 300);
}

/* Layers with many weights take longer if the gradients of micro-batches are added up.
 */
TEST(adding_up_counts) {
    static const double work[] = {1, 1, 1, 1};
    dlc_plan_layer layer[4];
    dlc_plan_stage stage[2];
    make(work, 4, layer);
    layer[3].parameter_bytes = 5000;
    dlc_plan_stages_accumulate(layer, 4, 0); /* in no time */
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 4, &free_link, 1, 2, NULL, stage),
                     DLC_OK);
    ck_assert_uint_eq(stage[0].end, 2);
    dlc_plan_stages_accumulate(layer, 4, 1000);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 4, &free_link, 1, 2, NULL, stage),
                     DLC_OK);
    ck_assert_uint_eq(stage[0].end, 3);
    ck_near(stage[0].backward, 6.3);
    ck_near(stage[1].backward, 7);
    ck_near(stage[1].forward, 1);
}

/* A cut with large boundary tensors isn't worth a better balance. */
TEST(boundary_counts) {
    static const double work[] = {1, 1, 1, 1};
    dlc_plan_link link = {.latency = 0, .bandwidth = 10};
    dlc_plan_layer layer[4];
    dlc_plan_stage stage[2];
    make(work, 4, layer);
    layer[1].cut_bytes = 1000; /* 100 s in each direction */
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 4, &link, 1, 2, NULL, stage), DLC_OK);
    ck_assert_uint_eq(stage[0].end, 1);
    ck_near(stage[0].send, 1);
    ck_near(stage[0].send_bytes, 10);
    ck_near(stage[1].send, 0);
}

static double slowest_of(const dlc_plan_layer *layer, size_t layers,
                         const dlc_plan_link *link, const size_t *first,
                         size_t stages) {
    double slowest = 0;
    for (size_t s = 0; s < stages; s++) {
        size_t end = s + 1 < stages ? first[s + 1] : layers;
        double seconds = dlc_plan_compute(layer + first[s], end - first[s], 1);
        if (s + 1 < stages)
            seconds += 2 * (link->latency + layer[end - 1].cut_bytes / link->bandwidth);
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

static double least_of(const dlc_plan_layer *layer, size_t layers,
                       const dlc_plan_link *link, size_t *first, size_t s,
                       size_t stages) {
    double least = INFINITY;
    if (s == stages)
        return slowest_of(layer, layers, link, first, stages);
    for (first[s] = first[s - 1] + 1; first[s] + (stages - s) <= layers; first[s]++)
        least = fmin(least, least_of(layer, layers, link, first, s + 1, stages));
    return least;
}

static void try_every_cut(uint64_t seed) {
    dlc_random random = dlc_random_make(3, seed);
    size_t layers = 2 + (size_t)dlc_random_below(&random, MOST - 1);
    double work[MOST + 1];
    dlc_plan_layer layer[MOST + 1];
    dlc_plan_link link = {.latency = 0.1, .bandwidth = 20};
    for (size_t i = 0; i < layers; i++)
        work[i] = (double)dlc_random_uniform(&random);
    make(work, layers, layer);
    for (size_t i = 0; i < layers; i++)
        layer[i].cut_bytes = (double)dlc_random_below(&random, 20);
    for (size_t k = 1; k <= layers; k++) {
        dlc_plan_stage stage[MOST + 1];
        size_t first[MOST + 1] = {0}, cut[MOST + 1];
        ck_assert_int_eq(
            dlc_plan_stages_cut(layer, layers, &link, 1, (int32_t)k, NULL, stage),
            DLC_OK);
        for (size_t s = 0; s < k; s++)
            cut[s] = stage[s].first;
        ck_near(slowest_of(layer, layers, &link, cut, k),
                least_of(layer, layers, &link, first, 1, k));
    }
}

TEST(no_cut_is_better) {
    for (uint64_t seed = 0; seed < 30; seed++)
        try_every_cut(seed);
}

/* k equal stages and m micro-batches take m + k - 1 slots; the bubble is k - 1 of them.
 */
TEST(bubble_of_equal_stages) {
    static const double work[] = {1, 1, 1, 1};
    dlc_plan_layer layer[4];
    dlc_plan_stage stage[4];
    dlc_plan_pipeline pipeline;
    make(work, 4, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 4, &free_link, 1, 4, NULL, stage),
                     DLC_OK);
    for (int32_t m = 1; m <= 16; m *= 2) {
        ck_assert_int_eq(dlc_plan_pipeline_run(layer, 1, m, 0, 4, stage, &pipeline),
                         DLC_OK);
        ck_near(pipeline.seconds, 3 * (m + 3));
        ck_near(pipeline.bubble, 3.0 / (m + 3));
        ck_near(pipeline.slowest, 3);
        ck_near(stage[0].busy, 3.0 * m);
    }
}

/* Stage s of k has at most k - s micro-batches in flight, and adds up their gradients.
 */
TEST(memory_of_stages) {
    static const double work[] = {1, 1, 1};
    dlc_plan_layer layer[3];
    dlc_plan_stage stage[3];
    dlc_plan_pipeline pipeline;
    make(work, 3, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 3, &free_link, 2, 3, NULL, stage),
                     DLC_OK);
    ck_assert_int_eq(dlc_plan_pipeline_run(layer, 2, 8, 2, 3, stage, &pipeline),
                     DLC_OK);
    ck_near(stage[0].memory_bytes, 400 + 10 * 2 * 3);
    ck_near(stage[1].memory_bytes, 400 + 20 * 2 * 2); /* with the stage's input */
    ck_near(stage[2].memory_bytes, 400 + 20 * 2 * 1);
    ck_near(pipeline.memory_bytes, 400 + 80);
    ck_assert_int_eq(dlc_plan_pipeline_run(layer, 2, 1, 2, 3, stage, &pipeline),
                     DLC_OK);
    ck_near(stage[0].memory_bytes, 300 + 10 * 2); /* there is only one micro-batch */
}

TEST(sending_takes_time) {
    static const double work[] = {1, 1};
    dlc_plan_link link = {.latency = 0.5, .bandwidth = 1e18};
    dlc_plan_layer layer[2];
    dlc_plan_stage stage[2];
    dlc_plan_pipeline pipeline;
    make(work, 2, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 2, &link, 1, 2, NULL, stage), DLC_OK);
    ck_assert_int_eq(dlc_plan_pipeline_run(layer, 1, 1, 0, 2, stage, &pipeline),
                     DLC_OK);
    ck_near(pipeline.seconds, 1 + 0.5 + 1 + 2 + 0.5 + 2);
}

/* Of equally good cuts the earliest is chosen, on every machine. */
TEST(ties_are_cut_early) {
    static const double work[] = {1, 1, 1};
    dlc_plan_layer layer[3];
    dlc_plan_stage stage[2];
    make(work, 3, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 3, &free_link, 1, 2, NULL, stage),
                     DLC_OK);
    ck_assert_uint_eq(stage[0].end, 1);
}

/* A stage has at most as many micro-batches in flight as there are stages from it on,
 * so it may be idle until one comes back. Two stages, computed by hand. */
TEST(in_flight_is_limited) {
    static const double work[] = {2, 2};
    dlc_plan_link link = {.latency = 1, .bandwidth = 1e18};
    dlc_plan_layer layer[2];
    dlc_plan_stage stage[2];
    dlc_plan_pipeline pipeline;
    make(work, 2, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 2, &link, 1, 2, NULL, stage), DLC_OK);
    ck_assert_int_eq(dlc_plan_pipeline_run(layer, 1, 3, 0, 2, stage, &pipeline),
                     DLC_OK);
    /* Stage 0: forward to 2 and 4; backward 10 to 14; forward 16; backward 20 and 28.
     */
    ck_near(pipeline.seconds, 28);
}

/* Three ranks and one: each of the three has a third of the samples; the one receives
 * what all of them send. */
TEST(stages_have_unequal_ranks) {
    static const double work[] = {1, 1, 1, 1};
    static const int32_t ranks[] = {3, 1};
    dlc_plan_link link = {.latency = 0.5, .bandwidth = 60};
    dlc_plan_layer layer[4];
    dlc_plan_stage stage[2];
    dlc_plan_pipeline pipeline;
    make(work, 4, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 4, &link, 6, 2, ranks, stage), DLC_OK);
    ck_assert_uint_eq(stage[1].first, 3);
    ck_near(stage[0].forward, 3 * 6 / 3);
    ck_near(stage[1].backward, 2 * 6);
    ck_near(stage[0].send_bytes, 10 * 6 / 3);
    ck_near(stage[0].send, 0.5 + 1);
    ck_assert_int_eq(dlc_plan_pipeline_run(layer, 6, 1, 1, 2, stage, &pipeline),
                     DLC_OK);
    ck_near(stage[0].memory_bytes, 2 * 300 + 3 * 10 * 2);
    ck_near(stage[1].memory_bytes, 2 * 100 + 2 * 10 * 6);
    ck_near(pipeline.seconds, 6 + 1.5 + 18 + 1.5 + 12);
    ck_near(pipeline.bubble, 1 - 4 * 18 / (4 * 39.0));
}

TEST(micro_batches) {
    ck_assert_int_eq(dlc_plan_micro_batch(32, 4, 1), 8);
    ck_assert_int_eq(dlc_plan_micro_batch(30, 4, 1), 8); /* the last one has 6 */
    ck_assert_int_eq(dlc_plan_micro_batch(30, 31, 1), 0);
    ck_assert_int_eq(dlc_plan_micro_batch(48, 4, 12), 12); /* one for each rank */
    ck_assert_int_eq(dlc_plan_micro_batch(48, 5, 12), 0);
}

/* As the simulation has it, where ranks split the work and messages take no time. */
TEST(work_of_a_pass) {
    static const double work[] = {6, 4};
    static const int32_t ranks[] = {2, 1};
    ck_assert_double_eq_tol(dlc_plan_stages_work(work, NULL, 2, 1), 6 + 4, 1e-12);
    ck_assert_double_eq_tol(dlc_plan_stages_work(work, NULL, 2, 5), 6 + 4 + 4 * 6,
                            1e-12);
    ck_assert_double_eq_tol(dlc_plan_stages_work(work, ranks, 2, 5), 3 + 4 + 4 * 4,
                            1e-12);
    for (int32_t count = 1; count < 9; count++) {
        dlc_plan_stage stage[] = {
            {.end = 1, .ranks = 2, .forward = 1, .backward = 2},
            {.first = 1, .end = 2, .ranks = 1, .forward = 1.5, .backward = 2.5}};
        const dlc_plan_layer layer[2] = {{0}};
        dlc_plan_pipeline pipeline;
        ck_assert_int_eq(dlc_plan_pipeline_run(layer, 1, count, 0, 2, stage, &pipeline),
                         DLC_OK);
        ck_assert_double_eq_tol(dlc_plan_stages_work(work, ranks, 2, count),
                                pipeline.seconds, 1e-9);
    }
}

TEST(mistakes_are_reported) {
    static const double work[] = {1, 1};
    dlc_plan_layer layer[2];
    dlc_plan_stage stage[2] = {{.first = 0, .end = 1}, {.first = 0, .end = 2}};
    dlc_plan_pipeline pipeline;
    make(work, 2, layer);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 2, &free_link, 1, 3, NULL, stage),
                     DLC_ERR_CONFIG);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 2, &free_link, 1, 0, NULL, stage),
                     DLC_ERR_CONFIG);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 2, &free_link, 0, 1, NULL, stage),
                     DLC_ERR_CONFIG);
    ck_assert_int_eq(dlc_plan_stages_measure(layer, 2, &free_link, 1, 2, NULL, stage),
                     DLC_ERR_CONFIG);
    ck_assert_int_eq(dlc_plan_pipeline_run(layer, 1, 0, 0, 2, stage, &pipeline),
                     DLC_ERR_CONFIG);
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_plan_stages_cut(layer, 2, &free_link, 1, 2, NULL, stage),
                     DLC_ERR_NOMEM);
    dlc_memory_fail_at(0);
}
