/* Layers for images: pooling, upsample, lrn, batch_norm, scale. */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

static const struct {
    const char *settings;
    dlc_shape in;
} pools[] = {
    {"kernel_size=2 stride=2", {4, {2, 20, 8, 8}}},
    {"kernel_size=3 stride=2", {4, {2, 32, 8, 8}}},
    {"kernel_size=3 stride=2", {4, {1, 3, 7, 10}}},
    {"kernel_size=3 stride=2 round=floor", {4, {1, 17, 8, 9}}},
    {"kernel_size=3 stride=2 pad=1", {4, {2, 5, 6, 7}}}, /* beyond the lower edge */
    {"kernel_size=3 stride=2 pad=1", {4, {2, 5, 7, 6}}}, /* beyond the right edge */
    {"kernel_size=3 stride=1 pad=1 round=floor", {4, {1, 20, 5, 4}}},
    {"kernel_size=1 stride=3", {4, {1, 3, 5, 8}}}, /* stride beyond the edge */
    {"kernel_size=2 stride=3", {4, {2, 3, 6, 8}}},
    {"kernel_size=1", {4, {1, 1, 1, 1}}},
    {"kernel_h=2 kernel_w=3 stride_h=1 stride_w=2 pad_w=1", {4, {1, 17, 6, 9}}},
    {"global=yes", {4, {2, 17, 5, 3}}},
    {"global=yes", {4, {1, 3, 1, 1}}},
    {"kernel_size=5 stride=4 pad=4", {4, {1, 2, 6, 6}}},
};

START_TEST(pool_max) {
    layer_spec spec = {
        .type = "pooling", .settings = pools[_i].settings, .in = {pools[_i].in}};
    check_all_ways(&spec, 1e-5);
}
END_TEST

START_TEST(pool_average) {
    static const char *const over[] = {"padded", "image"};
    for (int i = 0; i < 2; i++) {
        char *settings = dlc_format("method=average average_over=%s %s", over[i],
                                    pools[_i].settings);
        layer_spec spec = {
            .type = "pooling", .settings = settings, .in = {pools[_i].in}};
        check_all_ways(&spec, 1e-5);
        dlc_free(settings);
    }
}
END_TEST

START_TEST(pool_shapes) {
    /* Rounded up; a window that would begin beyond the image is left out. */
    static const struct {
        const char *settings;
        int64_t in, out;
    } rows[] = {
        {"kernel_size=3 stride=2", 32, 16},
        {"kernel_size=3 stride=2 round=floor", 32, 15},
        {"kernel_size=2 stride=2", 5, 3},
        {"kernel_size=1 stride=3", 5, 2},
        {"kernel_size=2 stride=2 pad=1", 4, 3},
        {"kernel_size=2 stride=2 pad=1", 3, 2},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        fixture r;
        layer_spec spec = {.type = "pooling",
                           .settings = rows[i].settings,
                           .in = {SHAPE(1, 1, rows[i].in, rows[i].in)}};
        ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
        ck_assert_int_eq(r.out[0].shape.dims[2], rows[i].out);
        ck_assert_int_eq(r.out[0].shape.dims[3], rows[i].out);
        fixture_close(&r);
    }
}
END_TEST

static const dlc_shape small[] = {
    {4, {2, 20, 3, 4}}, {4, {1, 1, 1, 1}}, {4, {3, 5, 2, 7}}, {4, {16, 3, 4, 1}}};

START_TEST(upsample) {
    static const char *const settings[] = {"",
                                           "method=bilinear",
                                           "factor=3",
                                           "factor=3 method=bilinear",
                                           "factor=1 method=bilinear",
                                           "factor=4 method=bilinear"};
    for (int i = 0; i < COUNT(settings); i++) {
        layer_spec spec = {
            .type = "upsample", .settings = settings[i], .in = {small[_i]}};
        check_all_ways(&spec, 1e-5);
    }
}
END_TEST

static const struct {
    const char *settings;
    dlc_shape in;
} lrns[] = {
    {"norm_region=within_channel local_size=3 alpha=0.5", {4, {2, 32, 6, 5}}},
    {"norm_region=within_channel local_size=5 alpha=2 beta=0.5 k=2", {4, {1, 3, 4, 7}}},
    {"norm_region=within_channel", {4, {1, 1, 1, 1}}},
    {"alpha=0.5", {4, {2, 20, 4, 3}}},
    {"local_size=3 alpha=2 beta=0.5 k=2", {4, {1, 17, 3, 3}}},
    {"local_size=1 alpha=1", {4, {1, 3, 2, 5}}},
    {"local_size=7 alpha=1", {4, {1, 3, 5, 2}}}, /* more than there are */
    {"alpha=0.3", {4, {1, 1, 1, 1}}},
    {"alpha=0.3", {4, {2, 96, 3, 3}}},
};

START_TEST(lrn) {
    layer_spec spec = {
        .type = "lrn", .settings = lrns[_i].settings, .in = {lrns[_i].in}};
    check_all_ways(&spec, 3e-5);
}
END_TEST

static const dlc_shape channels[] = {
    {4, {2, 20, 4, 3}}, {4, {4, 1, 1, 1}}, {4, {3, 17, 3, 5}},
    {4, {2, 32, 4, 4}}, {2, {6, 5}},       {3, {2, 3, 7}},
};

START_TEST(batch_norm) {
    if (!fixture_knows("batch_norm"))
        return;
    static const char *const settings[] = {
        "", "eps=0.01 scale_bias=no", "use_global_stats=yes",
        "use_global_stats=yes scale_bias=no momentum=0.5"};
    for (int i = 0; i < COUNT(settings); i++) {
        layer_spec spec = {
            .type = "batch_norm", .settings = settings[i], .in = {channels[_i]}};
        check_all_ways(&spec, 2e-4);
        spec.fused = "";
        check_all_ways(&spec, 2e-4);
    }
}
END_TEST

/* mean and variance move towards the batch's, the latter unbiased. */
START_TEST(batch_norm_averages) {
    if (!fixture_knows("batch_norm"))
        return;
    fixture r;
    layer_spec spec = {
        .type = "batch_norm", .settings = "momentum=0.75", .in = {SHAPE(2, 1, 2, 1)}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    const float in[4] = {1, 2, 3, 6}; /* mean 3, variance 14/3 */
    memcpy(r.in_data[0], in, sizeof in);
    r.param_data[0][0] = 1;
    r.param_data[2][0] = 7;
    r.param_data[3][0] = 2;
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq_tol(r.param_data[2][0], 0.75f * 7 + 0.25f * 3, 1e-5f);
    ck_assert_float_eq_tol(r.param_data[3][0], 0.75f * 2 + 0.25f * 14 / 3, 1e-5f);
    ck_assert_uint_eq(r.param[2].flags, DLC_PARAM_BUFFER);
    ck_assert_uint_eq(r.param[0].flags, 0);
    fixture_close(&r);
    spec.settings = "use_global_stats=yes momentum=0.75";
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    r.param_data[2][0] = 7;
    r.param_data[3][0] = 2;
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_float_eq(r.param_data[2][0], 7);
    ck_assert_float_eq(r.param_data[3][0], 2);
    fixture_close(&r);
}
END_TEST

/* The input of the first layer needs no gradient; the parameters' must still be
 * computed. */
START_TEST(no_input_gradient) {
    static const char *const types[] = {"batch_norm", "scale", "convolution"};
    static const char *const settings[] = {"", "bias=yes",
                                           "num_output=5 kernel_size=1"};
    for (int i = 0; i < COUNT(types); i++) {
        fixture with, without;
        if (!fixture_knows(types[i]))
            continue;
        layer_spec spec = {
            .type = types[i], .settings = settings[i], .in = {SHAPE(3, 5, 4, 4)}};
        ck_assert_int_eq(fixture_open(&with, &spec), DLC_OK);
        ck_assert_int_eq(fixture_open(&without, &spec), DLC_OK);
        without.unwanted = 1;
        fixture *both[] = {&with, &without};
        for (int k = 0; k < 2; k++) {
            fill_values(both[k]->in_data[0], fixture_in_count(both[k], 0), 1, 1);
            fill_values(both[k]->out_diff, fixture_out_count(both[k]), 2, 1);
            for (int32_t p = 0; p < both[k]->memory.params; p++)
                fill_values(both[k]->param_data[p], fixture_param_count(both[k], p), 3,
                            1);
            ck_assert_int_eq(fixture_forward(both[k]), DLC_OK);
            ck_assert_int_eq(fixture_backward(both[k]), DLC_OK);
        }
        for (int p = 0; p < 2; p++)
            ck_assert_double_eq(largest_difference(with.param_diff[p],
                                                   without.param_diff[p],
                                                   fixture_param_count(&with, p)),
                                0);
        fixture_close(&with);
        fixture_close(&without);
    }
}
END_TEST

START_TEST(scale) {
    layer_spec spec = {.type = "scale", .settings = "", .in = {channels[_i]}};
    check_all_ways(&spec, 1e-5);
    spec.settings = "bias=yes";
    check_all_ways(&spec, 1e-5);
    spec.frozen = 1;
    check_all_ways(&spec, 1e-5);
}
END_TEST

/* 16-bit types round outputs, and averages of rounded values. */
START_TEST(sixteen_bits) {
    static const struct {
        dlc_dtype type;
        double tolerance;
    } types[] = {{DLC_BF16, 1.0 / 128}, {DLC_F16, 1.0 / 1024}};
    static const struct {
        const char *type, *settings;
    } cases[] = {
        {"pooling", "kernel_size=3 stride=2 pad=1"},
        {"pooling", "method=average kernel_size=3 stride=2"},
        {"pooling", "method=average global=yes"},
        {"lrn", "alpha=0.5"},
        {"lrn", "norm_region=within_channel local_size=3"},
        {"scale", "bias=yes"},
        {"upsample", "method=bilinear"},
        {"upsample", "factor=3"},
    };
    static const dlc_shape shapes[] = {{4, {2, 16, 6, 5}}, {4, {3, 5, 4, 7}}};
    if (!fixture_has(types[_i].type))
        return;
    for (int i = 0; i < COUNT(cases); i++)
        for (int k = 0; k < COUNT(shapes); k++) {
            layer_spec spec = {.type = cases[i].type,
                               .settings = cases[i].settings,
                               .floats = types[_i].type,
                               .in = {shapes[k]}};
            if (fixture_knows(spec.type) && fixture_takes(spec.type, spec.floats))
                check_all_ways(&spec, types[_i].tolerance);
        }
}
END_TEST

START_TEST(refusals) {
    layer_spec spec = {.type = "pooling", .in = {SHAPE(2, 3, 5, 4)}};
    spec.settings = "";
    check_refused(&spec, DLC_ERR_CONFIG, "kernel_size");
    spec.settings = "kernel_size=6";
    check_refused(&spec, DLC_ERR_CONFIG, "2x3x5x4");
    spec.settings = "kernel_size=2 pad=2";
    check_refused(&spec, DLC_ERR_CONFIG, "padding alone");
    spec.settings = "global=yes kernel_size=2";
    check_refused(&spec, DLC_ERR_CONFIG, "global");
    spec.settings = "global=yes stride=2";
    check_refused(&spec, DLC_ERR_CONFIG, "global");
    spec.settings = "kernel_size=2";
    spec.in[0] = SHAPE(2, 3);
    check_refused(&spec, DLC_ERR_CONFIG, "2x3");
    spec = (layer_spec){
        .type = "lrn", .settings = "local_size=4", .in = {SHAPE(1, 2, 3, 3)}};
    check_refused(&spec, DLC_ERR_CONFIG, "odd");
    if (!fixture_knows("batch_norm"))
        return;
    spec = (layer_spec){
        .type = "batch_norm", .settings = "", .in = {SHAPE(1, 3, 1, 1)}};
    check_refused(&spec, DLC_ERR_CONFIG, "1x3x1x1");
    spec.in[0] = SHAPE(3);
    check_refused(&spec, DLC_ERR_CONFIG, "dimensions");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, pool_max, 0, COUNT(pools));
    tcase_add_loop_test(tests, pool_average, 0, COUNT(pools));
    tcase_add_test(tests, pool_shapes);
    tcase_add_loop_test(tests, upsample, 0, COUNT(small));
    tcase_add_loop_test(tests, lrn, 0, COUNT(lrns));
    tcase_add_loop_test(tests, batch_norm, 0, COUNT(channels));
    tcase_add_test(tests, batch_norm_averages);
    tcase_add_test(tests, no_input_gradient);
    tcase_add_loop_test(tests, scale, 0, COUNT(channels));
    tcase_add_loop_test(tests, sixteen_bits, 0, 2);
    tcase_add_test(tests, refusals);
    return run_suite("layers-images", tests);
}
