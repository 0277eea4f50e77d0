/* Losses and accuracy. */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "support/test.h"
#include "target.h"

static const struct {
    const char *settings;
    dlc_shape scores, labels;
} cases[] = {
    {"", {2, {5, 10}}, {1, {5}}},
    {"", {2, {1, 2}}, {1, {1}}},
    {"ignore_label=1", {2, {64, 3}}, {1, {64}}},
    {"", {2, {300, 1000}}, {1, {300}}},
    {"", {4, {3, 17, 1, 1}}, {1, {3}}},
    {"", {4, {2, 5, 3, 4}}, {3, {2, 3, 4}}},
    {"ignore_label=0", {4, {2, 5, 3, 4}}, {4, {2, 1, 3, 4}}},
};

static layer_spec spec_of(const char *type, int i) {
    return (layer_spec){.type = type,
                        .settings = cases[i].settings,
                        .inputs = 2,
                        .labels = 2,
                        .in = {cases[i].scores, cases[i].labels}};
}

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

TEST_EACH(softmax_loss, COUNT(cases)) {
    layer_spec spec = spec_of("softmax_loss", _i);
    check_all_ways(&spec, 1e-5);
}

TEST(label_smoothing) {
    static const char *const settings[] = {"label_smoothing=0.1", "label_smoothing=1"};
    for (int i = 0; i < 2; i++) {
        layer_spec spec = spec_of("softmax_loss", 0);
        spec.settings = settings[i];
        check_all_ways(&spec, 1e-5);
        spec = spec_of("softmax_loss", 5);
        spec.settings = settings[i];
        check_all_ways(&spec, 1e-5);
    }
}

/* Labels that are a probability of each class, with the weights of any numbers. */
TEST_EACH(soft_labels, 6) {
    static const char *const settings[] = {"", "label_smoothing=0.3"};
    static const dlc_shape shapes[] = {{2, {5, 10}}, {4, {2, 5, 3, 4}}, {2, {40, 30}}};
    layer_spec spec = {.type = "softmax_loss",
                       .settings = settings[_i % 2],
                       .inputs = 2,
                       .in = {shapes[_i / 2], shapes[_i / 2]}};
    check_all_ways(&spec, 1e-5);
}

/* ---- Losses of values and targets -------------------------------------------- */

static const struct {
    const char *settings;
    dlc_shape values, targets;
    int whole; /* targets are whole numbers */
} pairs[] = {
    {"", {2, {5, 3}}, {2, {5, 3}}, 0},
    {"normalize=element", {2, {64, 17}}, {2, {64, 17}}, 0},
    {"", {4, {3, 2, 5, 7}}, {4, {3, 2, 5, 7}}, 0},
    {"", {2, {6, 1}}, {1, {6}}, 1},
    {"ignore_label=1", {4, {2, 1, 9, 8}}, {3, {2, 9, 8}}, 1},
    {"normalize=element ignore_label=0", {4, {2, 1, 9, 8}}, {3, {2, 9, 8}}, 1},
};
static const char *const pair_types[] = {"sigmoid_cross_entropy_loss",
                                         "euclidean_loss"};

TEST_EACH(pair_losses, COUNT(pairs)) {
    for (int t = 0; t < 2; t++) {
        layer_spec spec = {.type = pair_types[t],
                           .settings = pairs[_i].settings,
                           .inputs = 2,
                           .labels = pairs[_i].whole ? 2 : 0,
                           .in = {pairs[_i].values, pairs[_i].targets}};
        check_all_ways(&spec, 1e-5);
    }
}

/* By hand: the formulas of Caffe, whose mean is over samples, values that overflow exp,
 * and targets that do not count. */
TEST(pair_losses_by_hand) {
    static const float values[6] = {200, -200, 0, 1, 2, 3};
    static const float targets[6] = {1, 0, 0.5f, NAN, NAN, NAN};
    const double want[2] = {log(2), (199.0 * 199 + 200.0 * 200 + 0.25) / 2};
    const float slopes[2][3] = {{0, 0, 0}, {199, -200, -0.5f}};
    for (int t = 0; t < 2; t++) {
        layer_spec spec = {.type = pair_types[t],
                           .settings = "",
                           .inputs = 2,
                           .in = {SHAPE(2, 3), SHAPE(2, 3)}};
        fixture r;
        ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
        memcpy(r.in_data[0], values, sizeof values);
        memcpy(r.in_data[1], targets, sizeof targets);
        ck_assert_int_eq(fixture_forward(&r), DLC_OK);
        ck_assert_int_eq(fixture_backward(&r), DLC_OK);
        ck_assert_float_eq_tol(r.out_data[0], (float)want[t], 1e-6f * (float)want[t]);
        ck_assert_float_eq(r.out_data[1], 1);
        for (int i = 0; i < 6; i++)
            ck_assert_float_eq_tol(r.in_diff[0][i], i < 3 ? slopes[t][i] : 0, 1e-6f);
        fixture_close(&r);
    }
}

TEST(pair_losses_refuse) {
    layer_spec spec = {.type = "euclidean_loss",
                       .settings = "",
                       .inputs = 2,
                       .in = {SHAPE(2, 3), SHAPE(3, 2)}};
    check_refused(&spec, DLC_ERR_CONFIG, "a target for each of the values 2x3");
    spec.in[1] = SHAPE(2);
    check_refused(&spec, DLC_ERR_CONFIG, "it is 2");
    spec.inputs = 1;
    check_refused(&spec, DLC_ERR_CONFIG, "2 inputs");
}

/* In 16-bit types, if the family has them. */
TEST_EACH(sixteen_bits, COUNT(cases)) {
    static const char *const types[] = {"softmax_loss", "accuracy"};
    static const dlc_dtype floats[] = {DLC_BF16, DLC_F16};
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 2; k++) {
            layer_spec spec = spec_of(types[t], _i);
            spec.floats = floats[k];
            if (fixture_has(spec.floats) && fixture_takes(spec.type, spec.floats))
                check_all_ways(&spec, k ? 1.0 / 1024 : 1.0 / 128);
        }
}

TEST_EACH(accuracy, COUNT(cases)) {
    layer_spec spec = spec_of("accuracy", _i);
    check_all_ways(&spec, 1e-6);
    spec.settings = "top_k=2";
    check_all_ways(&spec, 1e-6);
}

static void scores_open(fixture *r, const char *type, const char *settings,
                        const float scores[6], const int32_t labels[2]) {
    layer_spec spec = {.type = type,
                       .settings = settings,
                       .inputs = 2,
                       .labels = 2,
                       .in = {SHAPE(2, 3), SHAPE(2)}};
    ck_assert_int_eq(fixture_open(r, &spec), DLC_OK);
    memcpy(r->in_data[0], scores, 6 * sizeof *scores);
    memcpy(r->in_data[1], labels, 2 * sizeof *labels);
}

/* Scores that overflow exp, in either direction. */
TEST(large_scores) {
    static const float scores[6] = {1000, 0, -1000, -2000, -2001, -3000};
    static const int32_t labels[2] = {0, 1};
    fixture r;
    scores_open(&r, "softmax_loss", "", scores, labels);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq_tol(r.out_data[0], (float)(log1p(exp(-1)) + 1), 1e-5f);
    ck_assert_float_eq(r.out_data[1], 2);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    ck_assert_float_eq_tol(r.in_diff[0][0], 0, 1e-6f);
    ck_assert_float_eq_tol(r.in_diff[0][4], (float)((1 / (1 + exp(1)) - 1) / 2), 1e-6f);
    fixture_close(&r);
}

/* Padding samples don't count, in the sum, the count or the gradient. */
TEST(no_samples) {
    static const float scores[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t one[2] = {DLC_LABEL_NONE, 2}, none[2] = {-1, -1};
    fixture r;
    scores_open(&r, "softmax_loss", "", scores, one);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    ck_assert_float_eq(r.out_data[1], 1);
    for (int i = 0; i < 3; i++)
        ck_assert_float_eq(r.in_diff[0][i], 0);
    double p = exp(6) / (exp(4) + exp(5) + exp(6));
    ck_assert_float_eq_tol(r.in_diff[0][5], (float)(p - 1), 1e-6f);
    memcpy(r.in_data[1], none, sizeof none);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    ck_assert_float_eq(r.out_data[0], 0);
    ck_assert_float_eq(r.out_data[1], 0);
    for (int i = 0; i < 6; i++)
        ck_assert_float_eq(r.in_diff[0][i], 0);
    fixture_close(&r);
    scores_open(&r, "accuracy", "", scores, one);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq(r.out_data[0], 1);
    ck_assert_float_eq(r.out_data[1], 1);
    fixture_close(&r);
}

/* Equal scores and NaN are never right. */
TEST(ties) {
    static const float scores[6] = {2, 2, 2, NAN, NAN, NAN};
    static const int32_t labels[2] = {0, 0};
    fixture r;
    scores_open(&r, "accuracy", "", scores, labels);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq(r.out_data[0], 0);
    ck_assert_float_eq(r.out_data[1], 2);
    fixture_close(&r);
    scores_open(&r, "accuracy", "top_k=3", scores, labels);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq(r.out_data[0], 1);
    fixture_close(&r);
}

/* If labels are read asynchronously, the sum is NaN at once, and a later pass returns
 * the error. */
static dlc_status forward_until_error(fixture *r) {
    dlc_status status = fixture_forward(r);
    if (status != DLC_OK || !target_is_async())
        return status;
    ck_assert_float_nan(r->out_data[0]);
    return fixture_forward(r);
}

TEST(bad_labels) {
    static const char *const types[] = {"softmax_loss", "accuracy"};
    static const float scores[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t labels[][2] = {{0, 3}, {-2, 0}, {0, INT32_MAX}};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < COUNT(labels); i++) {
            fixture r;
            scores_open(&r, types[t], "", scores, labels[i]);
            ck_assert_int_eq(forward_until_error(&r), DLC_ERR_DATA);
            ck_assert_ptr_nonnull(strstr(dlc_detail(), "label"));
            fixture_close(&r);
        }
    fixture r;
    static const int32_t ignored[2] = {77, 0};
    scores_open(&r, "softmax_loss", "ignore_label=77", scores, ignored);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq(r.out_data[1], 1);
    fixture_close(&r);
}

TEST(refusals) {
    layer_spec spec = {.type = "softmax_loss",
                       .settings = "",
                       .inputs = 2,
                       .labels = 2,
                       .in = {SHAPE(2, 3), SHAPE(3)}};
    check_refused(&spec, DLC_ERR_CONFIG, "it is 3");
    spec.in[1] = SHAPE(2);
    spec.labels = 0;
    check_refused(&spec, DLC_ERR_CONFIG, "whole");
    spec.labels = 3;
    check_refused(&spec, DLC_ERR_CONFIG, "float32");
    spec.labels = 2;
    spec.inputs = 1;
    check_refused(&spec, DLC_ERR_CONFIG, "2 inputs");
    spec.inputs = 2;
    spec.in[0] = SHAPE(2);
    check_refused(&spec, DLC_ERR_CONFIG, "classes");
    spec.type = "accuracy";
    spec.settings = "top_k=4";
    spec.in[0] = SHAPE(2, 3);
    check_refused(&spec, DLC_ERR_CONFIG, "top_k");
}
