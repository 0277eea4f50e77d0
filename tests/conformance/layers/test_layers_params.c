/* Parameters: import and export round-trip, padding stays zero; a test net reads the
 * train net's. And the option tables, as the host checks them. */
#include "checker.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "plugin/check.h"
#include "support/test.h"
#include "target.h"

static const struct {
    const char *type, *settings;
    dlc_shape in;
} cases[] = {
    {"convolution", "num_output=20 kernel_size=5", {4, {2, 1, 9, 9}}},
    {"convolution", "num_output=17 kernel_size=3 layout=library", {4, {2, 3, 6, 6}}},
    {"convolution", "num_output=50 kernel_size=5 layout=library", {4, {2, 20, 8, 8}}},
    {"convolution", "num_output=6 kernel_size=3 group=3", {4, {1, 3, 5, 5}}},
    {"deconvolution", "num_output=20 kernel_size=4 stride=2 pad=1", {4, {2, 5, 4, 3}}},
    {"deconvolution", "num_output=6 kernel_size=2 group=2", {4, {1, 4, 5, 5}}},
    {"inner_product", "num_output=10", {2, {3, 17}}},
    {"inner_product", "num_output=500", {4, {64, 50, 4, 4}}},
    {"batch_norm", "", {4, {2, 5, 3, 3}}},
    {"scale", "bias=yes", {4, {2, 5, 3, 3}}},
};

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

/* Every value has a place of its own; all other places are zero. */
TEST_EACH(round_trip, COUNT(cases)) {
    fixture r;
    layer_spec spec = {
        .type = cases[_i].type, .settings = cases[_i].settings, .in = {cases[_i].in}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    for (int32_t p = 0; p < r.memory.params; p++) {
        int64_t count = fixture_param_count(&r, p), own_count = r.param_count[p],
                used = 0;
        ck_assert_int_ge(own_count, count);
        float *plain = dlc_alloc((size_t)count, sizeof(float));
        float *back = dlc_alloc((size_t)count, sizeof(float));
        float *own = dlc_alloc((size_t)own_count, sizeof(float));
        for (int64_t i = 0; i < count; i++)
            plain[i] = (float)(i + 1);
        fixture_param_import(&r, p, plain, own);
        double sum = 0;
        for (int64_t i = 0; i < own_count; i++) {
            used += own[i] != 0;
            sum += (double)own[i];
        }
        ck_assert_int_eq(used, count);
        ck_assert_double_eq(sum, (double)count * (double)(count + 1) / 2);
        fixture_param_export(&r, p, own, back);
        ck_assert_mem_eq(plain, back, (size_t)count * sizeof(float));
        dlc_free(plain);
        dlc_free(back);
        dlc_free(own);
    }
    fixture_close(&r);
}

/* Gradients leave the padding zero, so that solver state stays zero there. */
TEST_EACH(padding_stays_zero, COUNT(cases)) {
    fixture r;
    layer_spec spec = {
        .type = cases[_i].type, .settings = cases[_i].settings, .in = {cases[_i].in}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    int64_t count = r.param_count[0], plain_count = fixture_param_count(&r, 0);
    fill_values(r.in_data[0], fixture_in_count(&r, 0), 1, 1);
    fill_values(r.out_diff, fixture_out_count(&r), 2, 1);
    for (int32_t p = 0; p < r.memory.params; p++)
        fill_values(r.param_data[p], fixture_param_count(&r, p), 3, 1);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    float *own = dlc_alloc((size_t)count, sizeof(float));
    float *back = dlc_alloc((size_t)count, sizeof(float));
    fixture_param_gradient(&r, 0, own);
    fixture_param_import(&r, 0, r.param_diff[0], back);
    ck_assert_mem_eq(own, back, (size_t)count * sizeof(float));
    ck_assert_int_ge(count, plain_count);
    dlc_free(own);
    dlc_free(back);
    fixture_close(&r);
}

/* A test net with another batch size computes with the train net's weights, in their
 * layout. */
TEST_EACH(test_net, COUNT(cases)) {
    fixture train, test;
    layer_spec spec = {
        .type = cases[_i].type, .settings = cases[_i].settings, .in = {cases[_i].in}};
    ck_assert_int_eq(fixture_open(&train, &spec), DLC_OK);
    spec.phase = DLC_PHASE_TEST;
    spec.train_layer = &train;
    spec.in[0].dims[0] += 3;
    ck_assert_int_eq(fixture_open(&test, &spec), DLC_OK);
    for (int32_t p = 0; p < train.memory.params; p++) {
        ck_assert_int_eq(train.param_count[p], test.param_count[p]);
        int64_t count = fixture_param_count(&train, p);
        float *a = dlc_alloc((size_t)train.param_count[p], sizeof(float));
        float *b = dlc_alloc((size_t)train.param_count[p], sizeof(float));
        fill_values(train.param_data[p], count, 5, 1);
        fixture_param_import(&train, p, train.param_data[p], a);
        fixture_param_import(&test, p, train.param_data[p], b);
        ck_assert_mem_eq(a, b, (size_t)train.param_count[p] * sizeof(float));
        dlc_free(a);
        dlc_free(b);
    }
    fixture_close(&test);
    fixture_close(&train);
}

TEST(option_tables) {
    int features = 0;
    for (const dlc_feature *f = fixture_plugin()->features; f->name; f = DLC_NEXT(f)) {
        dlc_entry_state state = 0;
        ck_assert_msg(dlc_feature_check(f, &state) == DLC_OK, "%s: %s", f->name,
                      dlc_detail());
        if (f->options)
            ck_assert_msg(dlc_options_check(f->options) == DLC_OK, "%s: %s", f->name,
                          dlc_detail());
        ck_assert_str_eq(f->device, target_device());
        for (const dlc_option *o = f->options; o && o->name; o = DLC_NEXT(o))
            ck_assert_msg(o->help && *o->help, "%s: %s has no help", f->name, o->name);
        features++;
    }
    ck_assert_int_ge(features, 24);
}

/* Fuses a relu and nothing else, and only one. */
TEST(fuse) {
    fixture r;
    layer_spec spec = {.type = "convolution",
                       .settings = "num_output=2 kernel_size=1",
                       .fused = "",
                       .in = {SHAPE(1, 2, 2, 2)}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.ops->fuse(r.layer, fixture_feature("relu"), NULL),
                     DLC_ERR_UNSUPPORTED);
    fixture_close(&r);
    spec.fused = NULL;
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.ops->fuse(r.layer, fixture_feature("sigmoid"), NULL),
                     DLC_ERR_UNSUPPORTED);
    fixture_close(&r);
}

TEST(costs) {
    fixture r;
    layer_spec spec = {.type = "convolution",
                       .settings = "num_output=6 kernel_size=3 group=2",
                       .in = {SHAPE(2, 4, 5, 6)}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.shapes.multiply_adds, 2 * 6 * 3 * 4 * 2 * 9);
    ck_assert_int_eq(r.param[0].fan_in, 18);
    ck_assert_int_eq(r.param[0].fan_out, 54);
    ck_assert_str_eq(r.param[0].filler, "xavier");
    char text[64];
    r.ops->describe(r.layer, text, sizeof text);
    ck_assert_int_gt(strlen(text), 3);
    r.ops->describe(r.layer, text, 5);
    ck_assert_int_eq(strlen(text), 4);
    fixture_close(&r);
    spec = (layer_spec){
        .type = "inner_product",
        .settings = "num_output=7 weight_lr_mult=3 bias_lr_mult=2 bias_decay_mult=0",
        .in = {SHAPE(2, 4, 5)}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.shapes.multiply_adds, 2 * 20 * 7);
    ck_assert_double_eq(r.param[0].lr_mult, 3);
    ck_assert_double_eq(r.param[0].decay_mult, 1);
    ck_assert_double_eq(r.param[1].lr_mult, 2);
    ck_assert_double_eq(r.param[1].decay_mult, 0);
    fixture_close(&r);
}
