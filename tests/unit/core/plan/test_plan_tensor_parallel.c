/* Tests which layers are tensor-parallel (core/plan/tensor_parallel.c): on slow links
 * those with many parameters and small activations; the step is never slower than
 * without. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "plan/tensor_parallel.h"
#include "support/test.h"

enum { CONV1, RELU1, CONV2, FC1, RELU2, FC2, LOSS, LAYERS };

/* Similar to CaffeNet with a batch of 32; milliseconds per sample. */
static const dlc_plan_layer net[LAYERS] = {
    {.name = "conv1",
     .parameter_bytes = 1.4e5,
     .in_bytes = 6e5,
     .out_bytes = 1.2e6,
     .forward = {0, 2e-3},
     .backward = {0, 4e-3},
     .can_split = 1},
    {.name = "relu1", .in_bytes = 1.2e6, .out_bytes = 1.2e6, .is_light = 1},
    {.name = "conv2",
     .parameter_bytes = 9e6,
     .in_bytes = 1.2e6,
     .out_bytes = 3.7e4,
     .forward = {0, 4e-3},
     .backward = {0, 8e-3},
     .can_split = 1},
    {.name = "fc1",
     .parameter_bytes = 1.5e8,
     .in_bytes = 3.7e4,
     .out_bytes = 1.6e4,
     .forward = {1e-2, 5e-4},
     .backward = {2e-2, 1e-3},
     .can_split = 1},
    {.name = "relu2", .in_bytes = 1.6e4, .out_bytes = 1.6e4, .is_light = 1},
    {.name = "fc2",
     .parameter_bytes = 6.7e7,
     .in_bytes = 1.6e4,
     .out_bytes = 4e3,
     .forward = {5e-3, 2e-4},
     .backward = {1e-2, 4e-4},
     .can_split = 1},
    {.name = "loss", .in_bytes = 4e3, .out_bytes = 4},
};

static const dlc_plan_exchange best = {.overlap = DLC_PLAN_OVERLAP_BEST};

static dlc_plan_cluster network(double bytes_per_s, int32_t nodes) {
    return (dlc_plan_cluster){.nodes = nodes,
                              .ranks_per_node = 1,
                              .between = {50e-6, bytes_per_s, 0},
                              .copies = 2};
}

static dlc_plan_tensor_parallel plan(const dlc_plan_cluster *cluster, double samples,
                                     dlc_plan_layer_choice *choice,
                                     dlc_plan_extra *extra) {
    dlc_plan_tensor_parallel split;
    dlc_status status = dlc_plan_choose_tensor_parallel(net, LAYERS, cluster, &best,
                                                        samples, choice, extra, &split);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return split;
}

/* 1 Gbit/s between two machines: the fully connected layers and those between them. */
TEST(slow_link_splits_dense_layers) {
    dlc_plan_cluster c = network(1.25e8, 2);
    dlc_plan_layer_choice choice[LAYERS];
    dlc_plan_extra extra[LAYERS];
    dlc_plan_tensor_parallel split = plan(&c, 32, choice, extra);
    ck_assert_int_eq(split.split, 2);
    ck_assert(choice[FC1].tensor && choice[FC2].tensor && choice[RELU2].tensor);
    ck_assert(!choice[CONV1].tensor && !choice[CONV2].tensor && !choice[RELU1].tensor &&
              !choice[LOSS].tensor);
    ck_assert_double_gt(split.data.seconds, 2 * split.mix.seconds);
    ck_assert_double_lt(choice[FC1].tensor_bytes, choice[FC1].data_bytes / 10);
    ck_assert_double_lt(choice[FC1].tensor_seconds, choice[FC1].data_seconds);
    ck_assert_double_gt(choice[CONV2].tensor_seconds, choice[CONV2].data_seconds);
    ck_assert(extra[FC1].is_split && !extra[CONV1].is_split);
    ck_assert_double_eq(extra[FC1].parameter_bytes, 0.75e8);
    ck_assert_double_lt(split.memory_mix, split.memory_data);
}

/* An infinitely fast link is no reason to split; neither is one rank. */
TEST(fast_link_splits_nothing) {
    dlc_plan_layer_choice choice[LAYERS];
    dlc_plan_cluster fast = network(1e15, 2), one = network(1e8, 1);
    fast.between.latency = 0;
    dlc_plan_layer plain[LAYERS];
    memcpy(plain, net, sizeof plain);
    for (size_t i = 0; i < LAYERS;
         i++) /* else reading half of the weights would be faster */
        plain[i].forward.fixed = plain[i].backward.fixed = 0;
    dlc_plan_tensor_parallel split;
    ck_assert_int_eq(dlc_plan_choose_tensor_parallel(plain, LAYERS, &fast, &best, 32,
                                                     choice, NULL, &split),
                     DLC_OK);
    ck_assert_int_eq(split.split, 0);
    ck_assert_double_eq(split.mix.seconds, split.data.seconds);
    split = plan(&one, 32, choice, NULL);
    ck_assert_int_eq(split.split, 0);
}

/* Large batches make activations expensive. */
TEST(large_batch_splits_less) {
    dlc_plan_cluster c = network(1.25e8, 16);
    dlc_plan_layer_choice choice[LAYERS];
    dlc_plan_tensor_parallel small = plan(&c, 4, choice, NULL);
    ck_assert_int_ge(small.split, 2);
    dlc_plan_tensor_parallel large = plan(&c, 4096, choice, NULL);
    ck_assert_int_lt(large.split, small.split);
}

/* The search finds what trying all choices finds. */
TEST(search_is_optimal) {
    static const double rates[] = {1e7, 1.25e8, 1e9, 1e10, 1e11};
    static const size_t can[] = {CONV1, CONV2, FC1, FC2};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (int32_t nodes = 2; nodes <= 8; nodes *= 2) {
            dlc_plan_cluster c = network(rates[r], nodes);
            dlc_plan_layer_choice choice[LAYERS];
            double found = plan(&c, 32, choice, NULL).mix.seconds, least = INFINITY;
            for (unsigned trial = 0; trial < 16; trial++) {
                dlc_plan_tensor_parallel split;
                memset(choice, 0, sizeof choice);
                for (size_t i = 0; i < 4; i++)
                    choice[can[i]].tensor = trial >> i & 1;
                ck_assert_int_eq(dlc_plan_cost_tensor_parallel(
                                     net, LAYERS, &c, &best, 32, choice, NULL, &split),
                                 DLC_OK);
                least = fmin(least, split.mix.seconds);
            }
            /* a split must be 2 % faster than pure data parallelism to be chosen */
            ck_assert_msg(found <= least / 0.98 + 1e-12,
                          "%g bytes/s, %d machines: %g s found, %g s possible",
                          rates[r], nodes, found, least);
        }
}

/* The cost of a given choice is computed without changing it. */
TEST(cost_of_a_choice) {
    dlc_plan_cluster c = network(1.25e8, 2);
    dlc_plan_layer_choice choice[LAYERS] = {{0}};
    dlc_plan_tensor_parallel split;
    choice[CONV1].tensor = choice[RELU1].tensor = 1; /* light layers follow */
    ck_assert_int_eq(
        dlc_plan_cost_tensor_parallel(net, LAYERS, &c, &best, 32, choice, NULL, &split),
        DLC_OK);
    ck_assert_int_eq(split.split, 1);
    ck_assert(choice[CONV1].tensor && choice[RELU1].tensor && !choice[FC1].tensor);
    /* The gathered batch and the exchange behind it cost more than 0.1 MB of weights.
     */
    ck_assert_double_gt(split.mix.seconds, split.data.seconds);
}

TEST(out_of_memory) {
    dlc_plan_cluster c = network(1.25e8, 2);
    dlc_plan_layer_choice choice[LAYERS];
    dlc_plan_tensor_parallel split;
    for (size_t n = 1; n < 30; n++) {
        dlc_memory_fail_at(n);
        dlc_status status = dlc_plan_choose_tensor_parallel(net, LAYERS, &c, &best, 32,
                                                            choice, NULL, &split);
        dlc_memory_fail_at(0);
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
    }
}

/* Random nets: no crash, and the choice is never slower than pure data parallelism. */
static void random_net(uint64_t seed) {
    dlc_random random = dlc_random_make(7, seed);
    enum { MOST = 12 };
    dlc_plan_layer layer[MOST];
    dlc_plan_layer_choice choice[MOST];
    dlc_plan_tensor_parallel split;
    size_t layers = 1 + (size_t)dlc_random_below(&random, MOST);
    for (size_t i = 0; i < layers; i++) {
        double work = (double)dlc_random_uniform(&random) * 1e-2;
        layer[i] = (dlc_plan_layer){
            .name = "x",
            .parameter_bytes = dlc_random_below(&random, 3) == 0
                                   ? 0
                                   : (double)dlc_random_below(&random, 1u << 28),
            .in_bytes = (double)dlc_random_below(&random, 1u << 20),
            .out_bytes = (double)dlc_random_below(&random, 1u << 20),
            .forward = {0, work},
            .backward = {work, 2 * work},
            .can_split = dlc_random_below(&random, 2) == 0};
        layer[i].is_light = layer[i].parameter_bytes <= 0 && !layer[i].can_split;
    }
    dlc_plan_cluster c = {.nodes = 1 + (int32_t)dlc_random_below(&random, 5),
                          .ranks_per_node = 1 + (int32_t)dlc_random_below(&random, 5),
                          .inside = {1e-5, 1e10, 0},
                          .between = {1e-5, 1e9, 0},
                          .update_bandwidth = 1e10};
    ck_assert_int_eq(dlc_plan_choose_tensor_parallel(layer, layers, &c, &best, 8,
                                                     choice, NULL, &split),
                     DLC_OK);
    ck_assert_double_le(split.mix.seconds, split.data.seconds);
    for (size_t i = 0; i < layers; i++)
        ck_assert(!choice[i].tensor || layer[i].can_split || layer[i].is_light);
}

TEST(random_nets) {
    for (uint64_t seed = 0; seed < 50; seed++)
        random_net(seed);
}
