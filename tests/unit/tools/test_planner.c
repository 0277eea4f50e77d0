/* Tests what `dlcore plan` computes without measuring: parsing, recorded machines,
 * scaling and the report. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan_report.h"
#include "support/scratch.h"
#include "support/test.h"

enum { LAYERS = 4 };

/* A fake measurement. */
static plan_measured *measured_of(int32_t ranks) {
    static const dlc_plan_layer layer[LAYERS] = {
        {.name = "conv",
         .parameter_bytes = 1e6,
         .in_bytes = 6e5,
         .out_bytes = 1e6,
         .cut_bytes = 1e6,
         .forward = {0, 2e-3},
         .backward = {0, 4e-3},
         .can_split = 1},
        {.name = "relu",
         .in_bytes = 1e6,
         .out_bytes = 4e4,
         .cut_bytes = 4e4,
         .is_light = 1},
        {.name = "ip",
         .parameter_bytes = 2e8,
         .in_bytes = 4e4,
         .out_bytes = 4e3,
         .cut_bytes = 4e3,
         .forward = {1e-2, 5e-4},
         .backward = {2e-2, 1e-3},
         .can_split = 1},
        {.name = "loss", .in_bytes = 4e3, .out_bytes = 4},
    };
    plan_measured *m = calloc(1, sizeof *m + sizeof layer);
    ck_assert_ptr_nonnull(m);
    m->ranks = ranks;
    m->threads = 1;
    m->batch = 32;
    m->update_bandwidth = 5e9;
    m->copies = 2;
    m->host = 1;
    m->all_reduce_latency = 20e-6;
    m->all_reduce_bandwidth = 5e9;
    m->layers = LAYERS;
    (void)snprintf(m->transport, sizeof m->transport, "%s", "memory");
    memcpy(m->layer, layer, sizeof layer);
    return m;
}

static const plan_mesh none = {.micro_batches = 1};
static const plan_given nothing_given = {.latency = -1, .speed = 1};

static const char *machine(const char *name) {
    static char path[512];
    const char *root = getenv("DLCORE_SOURCE_DIR");
    ck_assert_msg(root != NULL, "run the tests by ctest");
    (void)snprintf(path, sizeof path, "%s/tests/topology/machines/%s.xml", root, name);
    return path;
}

static plan_target target_of(const plan_given *given, int32_t ranks) {
    plan_measured *m = measured_of(ranks);
    plan_target target;
    dlc_status status = plan_target_make(given, m, &target);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    free(m);
    return target;
}

/* ---- Parsing -----------------------------------------------------------------------
 */

TEST_SETTINGS(.setup = scratch_setup, .teardown = scratch_teardown);

TEST(rates_and_times) {
    double value = 0;
    ck_assert(plan_parse_rate("100Gb/s", &value));
    ck_assert_double_eq(value, 12.5e9);
    ck_assert(plan_parse_rate("12.5GB/s", &value));
    ck_assert_double_eq(value, 12.5e9);
    ck_assert(plan_parse_rate("800Mbit/s", &value));
    ck_assert_double_eq_tol(value, 1e8, 1);
    ck_assert(plan_parse_time("5us", &value));
    ck_assert_double_eq_tol(value, 5e-6, 1e-15);
    ck_assert(plan_parse_time("0ns", &value));
    ck_assert_double_eq(value, 0);
}

static const char *const bad_rates[] = {"",
                                        "100",
                                        "Gb/s",
                                        "-1Gb/s",
                                        "0Gb/s",
                                        "nanGb/s",
                                        "1gb/s",
                                        "1Gb/s ",
                                        "infGb/s",
                                        "1 Gb/s x",
                                        "1Gb/sGb/sGb/sGb/sGb/s"};

TEST(bad_rates_are_refused) {
    double value = 7;
    for (size_t i = 0; i < sizeof bad_rates / sizeof *bad_rates; i++) {
        ck_assert_msg(!plan_parse_rate(bad_rates[i], &value), "'%s'", bad_rates[i]);
        ck_assert_msg(!plan_parse_time(bad_rates[i], &value), "'%s'", bad_rates[i]);
    }
}

TEST(machines_and_ranks) {
    static const char *const bad[] = {
        "",       "0",   "x8",          "16x",           "16x0",   "-1x2",
        "16x8x2", "2.5", "99999999999", "100000x100000", "16 x 8y"};
    int32_t nodes = 0, each = 7;
    ck_assert(plan_parse_nodes("16x8", &nodes, &each));
    ck_assert_int_eq(nodes, 16);
    ck_assert_int_eq(each, 8);
    ck_assert(plan_parse_nodes("3", &nodes, &each));
    ck_assert_int_eq(nodes, 3);
    ck_assert_int_eq(each, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!plan_parse_nodes(bad[i], &nodes, &each), "'%s'", bad[i]);
}

/* ---- Targets --------------------------------------------------------------------- */

TEST(this_machine) {
    plan_target target = target_of(&nothing_given, 2);
    ck_assert_int_eq(target.cluster.nodes, 1);
    ck_assert_int_eq(target.cluster.ranks_per_node, 2);
    /* An all-reduce of 5 GB on two ranks takes a second: each sends half of it, twice.
     */
    ck_assert_double_eq_tol(target.cluster.inside.bandwidth, 5e9, 1);
    ck_assert_double_eq_tol(target.cluster.inside.latency, 10e-6, 1e-12);
    ck_contains(target.inside, "measured here, with transport memory");
    ck_assert_double_eq(target.cluster.interference, 1);
}

TEST(as_given) {
    plan_given given = {.nodes = 16,
                        .ranks_per_node = 8,
                        .link = 12.5e9,
                        .inside = 5e10,
                        .latency = 5e-6,
                        .speed = 1};
    plan_target target = target_of(&given, 1);
    ck_assert_int_eq(dlc_plan_ranks(&target.cluster), 128);
    ck_assert_double_eq(target.cluster.between.bandwidth, 12.5e9);
    ck_assert_double_eq(target.cluster.between.latency, 5e-6);
    ck_assert_double_eq(target.cluster.inside.bandwidth, 5e10);
    ck_contains(target.between, "as given");
}

/* Every recorded machine has ranks and links with a bandwidth; NVLink is faster than
 * PCIe. */
static const char *const machines[] = {
    "cloud-a100-4numa", "cloud-h100-2numa", "dgx-1",     "dual-socket",    "four-numa",
    "hgx-a100",         "hgx-h100",         "mi300x",    "nvswitch",       "pcie-box",
    "pcie-plain",       "pcie-switches",    "version-3", "virtual-machine"};

TEST_EACH(recorded_machines, COUNT(machines)) {
    plan_given given = nothing_given;
    given.from = machine(machines[_i]);
    given.nodes = 2;
    plan_target target = target_of(&given, 1);
    ck_assert_int_eq(target.cluster.nodes, 2);
    ck_assert_int_ge(target.cluster.ranks_per_node, 1);
    ck_assert_double_gt(target.cluster.inside.bandwidth, 0);
    ck_assert_double_gt(target.cluster.between.bandwidth, 0);
}

TEST(recorded_gpus) {
    plan_given given = nothing_given;
    given.from = machine("hgx-h100");
    plan_target nvlink = target_of(&given, 1);
    ck_assert_int_eq(nvlink.cluster.ranks_per_node, 8);
    ck_contains(nvlink.inside, "NV");
    ck_assert_str_eq(nvlink.route_inside, "p2p");
    given.from = machine("pcie-box");
    plan_target pci = target_of(&given, 1);
    ck_assert_double_lt(pci.cluster.inside.bandwidth, nvlink.cluster.inside.bandwidth);
    given.ranks_per_node = nvlink.cluster.ranks_per_node * 100;
    given.nodes = 1;
    plan_measured *m = measured_of(1);
    plan_target target;
    ck_assert_int_eq(plan_target_make(&given, m, &target), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "GPUs");
    free(m);
}

TEST(bad_recordings) {
    static const char not_xml[] = "this is no machine";
    plan_measured *m = measured_of(1);
    plan_given given = nothing_given;
    plan_target target;
    given.from = "/nowhere/machine.xml";
    ck_assert_int_ne(plan_target_make(&given, m, &target), DLC_OK);
    ck_contains(dlc_detail(), "/nowhere/machine.xml");
    given.from = scratch_write("bad.xml", not_xml, sizeof not_xml - 1);
    ck_assert_int_ne(plan_target_make(&given, m, &target), DLC_OK);
    free(m);
}

/* ---- Predictions ----------------------------------------------------------------- */

static plan_prediction predict(const dlc_plan_cluster *cluster) {
    plan_measured *m = measured_of(2);
    plan_prediction p;
    dlc_status status = plan_predict(m->layer, m->layers, cluster, 32, &none, &p);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    free(m);
    return p;
}

TEST(rows_of_ranks) {
    static const int32_t expected[] = {1, 2, 4, 6, 12, 18};
    dlc_plan_cluster c = {.nodes = 3,
                          .ranks_per_node = 6,
                          .inside = {1e-5, 1e10, 0},
                          .between = {1e-5, 1e9, 0}};
    plan_prediction p = predict(&c);
    ck_assert_uint_eq(p.rows, 6);
    for (size_t i = 0; i < p.rows; i++) {
        ck_assert_int_eq(p.row[i].ranks, expected[i]);
        ck_assert_int_eq((intmax_t)p.row[i].nodes * p.row[i].ranks_per_node,
                         expected[i]);
    }
    ck_assert_double_eq_tol(p.row[0].weak.efficiency, 1, 1e-9);
    ck_assert_double_eq_tol(p.row[0].strong.efficiency, 1, 1e-9);
    plan_prediction_free(&p);
}

/* More machines: more images per second in total, fewer per rank; the best combination
 * is never slower than data parallelism; weak scaling is never worse than strong. */
TEST(limits_of_scaling) {
    dlc_plan_cluster c = {.nodes = 16,
                          .ranks_per_node = 1,
                          .between = {1e-5, 1e9, 0},
                          .update_bandwidth = 5e9,
                          .copies = 2};
    plan_prediction p = predict(&c);
    for (size_t i = 0; i < p.rows; i++) {
        const plan_row *row = &p.row[i];
        ck_assert_double_le(row->weak.efficiency, 1 + 1e-9);
        ck_assert_double_ge(row->weak.best.images_per_s,
                            row->weak.images_per_s * (1 - 1e-9));
        ck_assert_double_ge(row->weak.images_per_s,
                            row->strong.images_per_s * (1 - 1e-9));
        if (i > 0) {
            ck_assert_double_gt(row->weak.images_per_s, p.row[i - 1].weak.images_per_s);
            ck_assert_double_le(row->weak.efficiency,
                                p.row[i - 1].weak.efficiency + 1e-9);
        }
    }
    ck_assert_double_eq_tol(p.row[p.rows - 1].strong.samples, 2, 1e-9);
    plan_prediction_free(&p);
}

/* Nearly all bytes are those of one layer, which is split on a slow link. */
TEST(slow_links_split) {
    dlc_plan_cluster c = {.nodes = 2,
                          .ranks_per_node = 1,
                          .between = {50e-6, 1.25e8, 0},
                          .update_bandwidth = 5e9};
    plan_prediction p = predict(&c);
    const plan_scaling *last = &p.row[p.rows - 1].weak;
    ck_assert_int_eq(last->best.kind, PLAN_TENSOR);
    ck_assert_int_eq(last->best.split, 1);
    ck_assert(p.choice[2].tensor && !p.choice[0].tensor);
    ck_assert_double_gt(last->best.images_per_s, 2 * last->images_per_s);
    plan_prediction_free(&p);
}

/* A layer has many weights and large inputs: to divide it over a slow link costs as
 * much as to exchange its gradients, but within a machine it costs little, and halves
 * what goes over the slow link. The best mix of 4 machines of 2 ranks. */
static plan_mix best_of_machines(double between) {
    const dlc_plan_layer layer[] = {{.name = "conv",
                                     .in_bytes = 1e5,
                                     .out_bytes = 1e5,
                                     .forward = {0, 1e-3},
                                     .backward = {0, 2e-3},
                                     .parameter_bytes = 1e6},
                                    {.name = "ip",
                                     .in_bytes = 1e5,
                                     .out_bytes = 1e5,
                                     .forward = {0, 1e-4},
                                     .backward = {0, 2e-4},
                                     .parameter_bytes = 4e7,
                                     .can_split = 1}};
    dlc_plan_cluster c = {.nodes = 4,
                          .ranks_per_node = 2,
                          .inside = {1e-6, 1e11, 0},
                          .between = {1e-6, between, 0}};
    plan_prediction p;
    ck_assert_int_eq(plan_predict(layer, 2, &c, 32, &none, &p), DLC_OK);
    plan_mix best = p.row[p.rows - 1].weak.best;
    ck_assert_double_ge(best.images_per_s, p.row[p.rows - 1].weak.images_per_s);
    plan_prediction_free(&p);
    return best;
}

TEST(groups_are_on_machines) {
    plan_mix slow = best_of_machines(1e8), fast = best_of_machines(1e12);
    ck_assert_int_eq(slow.kind, PLAN_TENSOR);
    ck_assert_int_eq(slow.split, 1);
    ck_assert_int_eq(slow.tensor, 2);
    ck_assert_int_eq(fast.tensor, 0);
}

/* Nineteen ranks for the convolution and one for the rest, as its work is: no rank
 * waits much for others, as in the same number of ranks with equal stages. */
TEST(stages_as_set) {
    static const int32_t ranks[] = {19, 1};
    const plan_mesh asked = {
        .mesh = {.ranks = 20, .pipeline = 2, .tensor = 1, .stage_ranks = ranks},
        .micro_batches = 32};
    const dlc_plan_layer layer[] = {{.name = "conv",
                                     .out_bytes = 10,
                                     .cut_bytes = 10,
                                     .forward = {0, 19e-4},
                                     .backward = {0, 38e-4},
                                     .parameter_bytes = 1e4},
                                    {.name = "ip",
                                     .out_bytes = 10,
                                     .cut_bytes = 10,
                                     .forward = {0, 1e-4},
                                     .backward = {0, 2e-4},
                                     .parameter_bytes = 4e6}};
    dlc_plan_cluster c = {.nodes = 20,
                          .ranks_per_node = 1,
                          .inside = {1e-6, 1e11, 0},
                          .between = {1e-6, 1e11, 0}};
    plan_prediction p;
    ck_assert_int_eq(plan_predict(layer, 2, &c, 32, &asked, &p), DLC_OK);
    ck_assert_int_eq(p.asked.stages, 2);
    ck_assert_int_eq(p.asked_stage[0].ranks, 19);
    ck_assert_double_lt(p.asked.bubble, 0.05);
    /* 608 samples, 3 ms for each of the last stage, which computes all the time. */
    ck_assert_double_eq_tol(p.asked.seconds, 608 * 3e-4, 0.05 * 608 * 3e-4);
    plan_prediction_free(&p);
}

/* Each micro-batch adds 4e6 bytes to a sum, unless it is the only one. */
TEST(micro_batches_are_added_up) {
    const dlc_plan_layer layer[] = {
        {.name = "conv", .forward = {0, 1e-3}, .backward = {0, 2e-3}},
        {.name = "ip",
         .forward = {0, 1e-3},
         .backward = {0, 2e-3},
         .parameter_bytes = 4e6}};
    dlc_plan_cluster c = {.nodes = 1, .ranks_per_node = 2, .inside = {0, 1e12, 0}};
    for (int32_t count = 1; count <= 4; count += 3) {
        const plan_mesh asked = {.mesh = {.ranks = 2, .pipeline = 2, .tensor = 1},
                                 .micro_batches = count};
        double seconds[2];
        for (int i = 0; i < 2; i++) {
            plan_prediction p;
            c.accumulate_bandwidth = i ? 1e9 : 0;
            ck_assert_int_eq(plan_predict(layer, 2, &c, 8, &asked, &p), DLC_OK);
            seconds[i] = p.asked.seconds;
            plan_prediction_free(&p);
        }
        ck_assert_double_eq_tol(seconds[1] - seconds[0],
                                count == 1 ? 0 : (double)count * 4e-3, 1e-9);
    }
}

/* Times of 8 and of 2 samples: a line through both; if there is none, the times of 2.
 */
TEST(times_of_two_batches) {
    static const struct {
        double many, few, fixed, per_sample;
    } cases[] = {{16e-3, 10e-3, 8e-3, 1e-3},
                 {16e-3, 4e-3, 0, 2e-3},
                 {16e-3, 2e-3, 0, 1e-3},
                 {3e-3, 4e-3, 4e-3, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_plan_layer layer = {.forward = {0, cases[i].many / 8},
                                .backward = {cases[i].many, 0}};
        const dlc_plan_layer small = {.forward = {0, cases[i].few / 2},
                                      .backward = {cases[i].few, 0}};
        plan_layers_fit(&layer, 1, 8, &small, 2);
        ck_assert_double_eq_tol(layer.forward.fixed, cases[i].fixed, 1e-9);
        ck_assert_double_eq_tol(layer.forward.per_sample, cases[i].per_sample, 1e-9);
        ck_assert_double_eq_tol(layer.backward.fixed, cases[i].fixed, 1e-9);
        ck_assert_double_eq_tol(layer.backward.per_sample, cases[i].per_sample, 1e-9);
    }
}

/* Two ranks that divide the second layer, alone and as one of two groups. */
TEST(groups_as_set) {
    const dlc_plan_layer layer[] = {
        {.name = "conv", .out_bytes = 10, .forward = {0, 1e-3}, .backward = {0, 2e-3}},
        {.name = "ip",
         .in_bytes = 10,
         .out_bytes = 10,
         .forward = {0, 1e-3},
         .backward = {0, 2e-3},
         .parameter_bytes = 4e8,
         .can_split = 1}};
    dlc_plan_cluster c = {
        .nodes = 1, .ranks_per_node = 4, .inside = {1e-6, 1e9, 0}, .fused_update = 1};
    plan_prediction p;
    plan_mix mix[2];
    for (int32_t i = 0; i < 2; i++) {
        const plan_mesh asked = {
            .mesh = {.ranks = 2 * (i + 1), .pipeline = 1, .tensor = 2},
            .micro_batches = 1};
        ck_assert_int_eq(plan_predict(layer, 2, &c, 8, &asked, &p), DLC_OK);
        mix[i] = p.asked;
        ck_assert_int_eq(p.asked_ranks, 2 * (i + 1));
        ck_assert_int_eq(mix[i].kind, PLAN_TENSOR);
        ck_assert_int_eq(mix[i].split, 1);
        ck_assert_int_eq(mix[i].tensor, 2);
        plan_prediction_free(&p);
    }
    /* Each rank has 8 samples of 6 ms; only groups reduce weights. */
    ck_assert_double_eq_tol(mix[0].seconds, 8 * 6e-3, 0.01 * 8 * 6e-3);
    ck_assert_double_gt(mix[1].seconds, mix[0].seconds);
    ck_assert_double_lt(mix[1].images_per_s, 2 * mix[0].images_per_s);
}

TEST(more_ranks_than_samples) {
    dlc_plan_cluster c = {.nodes = 64, .ranks_per_node = 1, .between = {1e-5, 1e9, 0}};
    plan_prediction p = predict(&c);
    ck_assert_double_eq(p.row[p.rows - 1].strong.samples, 0);
    ck_assert_double_gt(p.row[p.rows - 1].weak.images_per_s, 0);
    plan_prediction_free(&p);
}

TEST(faster_ranks) {
    plan_measured *m = measured_of(1);
    double before = dlc_plan_compute(m->layer, m->layers, 32);
    plan_layers_speed(m->layer, m->layers, 4);
    ck_assert_double_eq_tol(dlc_plan_compute(m->layer, m->layers, 32), before / 4,
                            1e-12);
    free(m);
}

TEST(nothing_to_plan) {
    const dlc_plan_layer idle = {.name = "idle"};
    dlc_plan_cluster one = {.nodes = 1, .ranks_per_node = 1};
    plan_prediction p;
    ck_assert_int_eq(plan_predict(&idle, 1, &one, 32, &none, &p), DLC_ERR_CONFIG);
}

TEST(out_of_memory) {
    plan_measured *m = measured_of(1);
    dlc_plan_cluster c = {.nodes = 2, .ranks_per_node = 1, .between = {1e-5, 1e9, 0}};
    plan_prediction p;
    for (size_t n = 1; n < 40; n += 3) {
        dlc_memory_fail_at(n);
        dlc_status status = plan_predict(m->layer, m->layers, &c, 32, &none, &p);
        dlc_memory_fail_at(0);
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
    }
    free(m);
}

/* ---- The report ------------------------------------------------------------------ */

static void report_of(int checked, dlc_text *text, dlc_json *json) {
    plan_measured *m = measured_of(2);
    plan_given given = {
        .nodes = 4, .ranks_per_node = 2, .link = 1.25e8, .latency = 5e-6, .speed = 2};
    plan_target target = target_of(&given, 2);
    plan_prediction p = predict(&target.cluster);
    plan_report report = {.net = "small",
                          .device = "cpu",
                          .batch = 32,
                          .measured = m,
                          .layer = m->layer,
                          .given = &given,
                          .target = &target,
                          .prediction = &p};
    if (checked)
        report.check = (plan_check){1, 2, 100, 110, 100, 0.1};
    plan_report_text(&report, text);
    plan_report_json(&report, json);
    ck_assert_int_eq(dlc_text_status(text), DLC_OK);
    ck_assert_int_eq(dlc_text_status(&json->text), DLC_OK);
    plan_prediction_free(&p);
    free(m);
}

TEST(report_as_text) {
    dlc_text text = {0};
    dlc_json json = {0};
    report_of(1, &text, &json);
    ck_contains(dlc_text_string(&text), "small: 50.25 million parameters (201.0 MB)");
    ck_contains(dlc_text_string(&text), "predicted for: 4 machines with 2 ranks each");
    ck_contains(dlc_text_string(&text), "scaled to: a rank 2 times as fast");
    ck_contains(dlc_text_string(&text),
                "110.0 images/s predicted, 100.0 measured: 10.0 % "
                "too high");
    ck_contains(dlc_text_string(&text), "tensor ip");
    ck_contains(dlc_text_string(&text), "best for 8 ranks: data, 1 tensor layer");
    dlc_text_free(&text);
    dlc_text_free(&json.text);
}

TEST_EACH(report_as_json, 2) {
    dlc_text text = {0};
    dlc_json json = {0};
    report_of(_i, &text, &json);
    json_t *root = json_loads(dlc_text_string(&json.text), JSON_REJECT_DUPLICATES,
                              NULL);
    ck_assert_msg(root != NULL, "%s", dlc_text_string(&json.text));
    const json_t *rows = json_object_get(root, "scaling");
    ck_assert_uint_eq(json_array_size(rows), 4);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_array_get(rows, 3), "ranks")), 8);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "layers")), LAYERS);
    const json_t *ip = json_array_get(json_object_get(root, "layers"), 2);
    ck_assert_str_eq(json_string_value(json_object_get(ip, "parallel")), "tensor");
    ck_assert(_i ? json_is_object(json_object_get(root, "check"))
                 : json_is_null(json_object_get(root, "check")));
    const json_t *weak = json_object_get(json_array_get(rows, 3), "weak");
    ck_assert_str_eq(
        json_string_value(json_object_get(json_object_get(weak, "best"), "kind")),
        "tensor");
    json_decref(root);
    dlc_text_free(&text);
    dlc_text_free(&json.text);
}
