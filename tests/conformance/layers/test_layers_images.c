/* Layers for images: pooling, upsample, lrn, batch_norm, scale. */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "support/test.h"
#include "target.h"

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
    /* Several vectors of channels, and a part of one. */
    {"kernel_size=2 stride=2", {4, {1, 151, 4, 5}}},
    {"kernel_size=3 stride=1 pad=1 round=floor", {4, {1, 85, 4, 5}}},
    {"kernel_size=3 stride=2", {4, {1, 104, 6, 5}}},
    {"kernel_size=3 stride=2 pad=2", {4, {2, 40, 5, 4}}},
    {"kernel_h=5 kernel_w=2 stride_h=2 stride_w=1 pad_h=3", {4, {1, 72, 6, 4}}},
    {"kernel_size=15 stride=8 pad=3", {4, {1, 17, 18, 12}}}, /* 225 taps */
    {"kernel_size=16 stride=8 pad=3", {4, {1, 17, 18, 12}}}, /* 256 */
    {"kernel_size=17 stride=8 pad=3", {4, {1, 3, 18, 12}}},
};

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

TEST_EACH(pool_max, COUNT(pools)) {
    layer_spec spec = {
        .type = "pooling", .settings = pools[_i].settings, .in = {pools[_i].in}};
    check_all_ways(&spec, 1e-5);
}

TEST_EACH(pool_average, COUNT(pools)) {
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

static const char *const methods[] = {"max", "average", "average average_over=image"};

/* A vector holds the same element of several images. */
TEST_EACH(pool_batch_blocked, COUNT(pools)) {
    if (!target_layers_are("onednn"))
        return;
    for (int i = 0; i < COUNT(methods); i++) {
        char *settings = dlc_format("%s method=%s", pools[_i].settings, methods[i]);
        layer_spec spec = {.type = "pooling",
                           .settings = settings,
                           .in = {pools[_i].in},
                           .layout = "batch_blocked"};
        spec.in[0].dims[0] = 16;
        if (spec.in[0].dims[1] > 5)
            spec.in[0].dims[1] = 3;
        check_layer(&spec, 1e-5);
        spec.phase = DLC_PHASE_TEST;
        check_layer(&spec, 1e-5);
        dlc_free(settings);
    }
}

/* Layouts and types with channels side by side. */
static const struct {
    const char *layout;
    dlc_dtype floats;
} sides[] = {{"last", DLC_F32}, {"blocked", DLC_F32}, {"last", DLC_BF16}};

/* Opens a layer whose 41 channels are `value` in every pixel; 0 if there is no such
 * type or layout. */
static int open_equal(fixture *r, const char *settings, int side, float value) {
    const layer_spec spec = {.type = "pooling",
                             .settings = settings,
                             .in = {SHAPE(1, 41, 5, 6)},
                             .layout = sides[side].layout,
                             .floats = sides[side].floats};
    if (spec.floats == DLC_BF16 && !fixture_has(DLC_BF16))
        return 0;
    ck_assert_int_eq(fixture_open(r, &spec), DLC_OK);
    if (!r->in[0].layout) { /* the instruction set has no such layout */
        fixture_close(r);
        return 0;
    }
    for (int64_t i = 0; i < fixture_in_count(r, 0); i++)
        r->in_data[0][i] = value;
    for (int64_t i = 0; i < fixture_out_count(r); i++)
        r->out_diff[i] = 1;
    return 1;
}

/* Of equal numbers the first in the image wins, zeros of either sign and infinities
 * included. */
TEST(pool_first_of_equal) {
    static const float values[] = {2, -3, 0, -INFINITY, INFINITY};
    static const struct {
        const char *settings;
        float first[6]; /* gradients of the first row */
    } rows[] = {{"kernel_size=2 stride=2", {1, 0, 1, 0, 1, 0}},
                {"kernel_size=3 stride=1 pad=1", {4, 2, 2, 2, 2, 0}},
                {"kernel_size=3 stride=3 pad=1", {1, 0, 1, 0, 0, 1}}};
    for (int i = 0; i < COUNT(rows) * COUNT(values) * COUNT(sides); i++) {
        fixture r;
        int row = i % COUNT(rows), side = i / COUNT(rows) % COUNT(sides);
        float value = values[i / COUNT(rows) / COUNT(sides)];
        if (!open_equal(&r, rows[row].settings, side, value))
            continue;
        for (int64_t k = 0; value == 0 && k < fixture_in_count(&r, 0); k++)
            r.in_data[0][k] = k % 2 ? 0.0f : -0.0f;
        ck_assert_int_eq(fixture_forward(&r), DLC_OK);
        ck_assert_int_eq(fixture_backward(&r), DLC_OK);
        for (int64_t k = 0; k < fixture_out_count(&r); k++)
            if (r.out_data[k] != value)
                ck_abort_msg("output %lld is %g", (long long)k, (double)r.out_data[k]);
        for (int64_t k = 0; k < 6 * 41; k++) {
            float got = r.in_diff[0][k / 6 * 30 + k % 6];
            if (got != rows[row].first[k % 6])
                ck_abort_msg("%s, %s: gradient %lld of channel %lld is %g",
                             rows[row].settings, sides[side].layout, (long long)k % 6,
                             (long long)k / 6, (double)got);
        }
        fixture_close(&r);
    }
}

/* NaN of either sign is the maximum, wherever in the window it is. */
TEST(pool_nan) {
    static const char *const settings[] = {
        "kernel_size=2 stride=2", "kernel_size=3 stride=2", "kernel_size=4 stride=4"};
    for (int i = 0; i < COUNT(settings) * COUNT(sides) * 4; i++) {
        fixture r;
        int side = i / COUNT(settings) % COUNT(sides), place = i % 4;
        if (!open_equal(&r, settings[i % COUNT(settings)], side, 1))
            continue;
        int64_t windows = fixture_out_count(&r) / 41;
        for (int64_t c = 0; c < 41; c += 3) /* in the first window alone */
            r.in_data[0][c * 30 + place / 2 * 6 + place % 2] = c % 2 ? NAN : -NAN;
        ck_assert_int_eq(fixture_forward(&r), DLC_OK);
        for (int64_t k = 0; k < fixture_out_count(&r); k++) {
            int wanted = k % windows == 0 && k / windows % 3 == 0;
            if (isnan(r.out_data[k]) ? !wanted : wanted || r.out_data[k] != 1)
                ck_abort_msg("%s: output %lld is %g", settings[i % COUNT(settings)],
                             (long long)k, (double)r.out_data[k]);
        }
        fixture_close(&r);
    }
}

static const struct {
    const char *type, *settings;
} windowed[] = {{"pooling", "kernel_size=3 stride=2"},
                {"pooling", "kernel_size=2 stride=2"},
                {"pooling", "kernel_size=3 pad=1"},
                {"pooling", "kernel_size=3 stride=2 pad=1 method=average"},
                {"lrn", "alpha=0.5"}};

/* Bitwise the same. */
TEST_EACH(any_number_of_threads, COUNT(windowed)) {
    for (int side = 0; side < COUNT(sides); side++) {
        const layer_spec spec = {.type = windowed[_i].type,
                                 .settings = windowed[_i].settings,
                                 .in = {SHAPE(3, 40, 27, 22)},
                                 .layout = sides[side].layout,
                                 .floats = sides[side].floats};
        if (spec.floats != DLC_BF16 || fixture_has(DLC_BF16))
            check_any_number_of_threads(spec);
    }
}

/* Tensors that exceed the caches are written with streaming stores. */
TEST_EACH(streaming_stores, COUNT(windowed)) {
    for (int side = 0; side < COUNT(sides); side++) {
        fixture large, plain;
        layer_spec spec = {.type = windowed[_i].type,
                           .settings = windowed[_i].settings,
                           .in = {SHAPE(18, 64, 62, 63)},
                           .layout = sides[side].layout,
                           .floats = sides[side].floats};
        if (spec.floats == DLC_BF16 && !fixture_has(DLC_BF16))
            continue;
        run_fixture(&large, &spec);
        spec.layout = NULL; /* by other code */
        run_fixture(&plain, &spec);
        double most = spec.floats == DLC_BF16 ? 1.0 / 32 : 2e-5;
        ck_assert_double_le(largest_difference(large.out_data, plain.out_data,
                                               fixture_out_count(&large)),
                            most);
        ck_assert_double_le(largest_difference(large.in_diff[0], plain.in_diff[0],
                                               fixture_in_count(&large, 0)),
                            most);
        fixture_close(&large);
        fixture_close(&plain);
    }
}

TEST(pool_shapes) {
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

static const dlc_shape small[] = {
    {4, {2, 20, 3, 4}}, {4, {1, 1, 1, 1}}, {4, {3, 5, 2, 7}}, {4, {16, 3, 4, 1}}};

TEST_EACH(upsample, COUNT(small)) {
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

static const struct {
    const char *settings;
    dlc_shape in;
} lrns[] = {
    {"norm_region=within_channel local_size=3 alpha=0.5", {4, {2, 32, 6, 5}}},
    {"norm_region=within_channel local_size=5 alpha=2 beta=0.5 k=2", {4, {1, 3, 4, 7}}},
    {"norm_region=within_channel", {4, {1, 1, 1, 1}}},
    {"norm_region=within_channel alpha=2 k=0.5", {4, {2, 21, 7, 4}}},
    {"norm_region=within_channel local_size=9 alpha=3", {4, {3, 40, 3, 11}}},
    {"norm_region=within_channel local_size=3 alpha=2", {4, {1, 35, 1, 9}}},
    {"alpha=0.5", {4, {2, 20, 4, 3}}},
    {"local_size=3 alpha=2 beta=0.5 k=2", {4, {1, 17, 3, 3}}},
    {"local_size=1 alpha=1", {4, {1, 3, 2, 5}}},
    {"local_size=7 alpha=1", {4, {1, 3, 5, 2}}}, /* more than there are */
    {"alpha=0.3", {4, {1, 1, 1, 1}}},
    {"alpha=0.3", {4, {2, 96, 3, 3}}},
    {"alpha=2 k=0.5", {4, {1, 85, 3, 4}}},
    {"local_size=3 alpha=1 k=2", {4, {2, 40, 2, 5}}},
    {"local_size=9 alpha=3", {4, {1, 24, 5, 7}}},
    {"local_size=33 alpha=3", {4, {1, 72, 3, 2}}},
    {"local_size=35 alpha=3", {4, {1, 40, 2, 2}}},
    {"alpha=1 beta=0.75 k=1", {4, {1, 20, 17, 9}}},
    {"alpha=1", {4, {1, 2051, 1, 2}}},
};

TEST_EACH(lrn, COUNT(lrns)) {
    layer_spec spec = {
        .type = "lrn", .settings = lrns[_i].settings, .in = {lrns[_i].in}};
    check_all_ways(&spec, 3e-5);
}

static const dlc_shape channels[] = {
    {4, {2, 20, 4, 3}}, {4, {4, 1, 1, 1}}, {4, {3, 17, 3, 5}},
    {4, {2, 32, 4, 4}}, {2, {6, 5}},       {3, {2, 3, 7}},
};

TEST_EACH(batch_norm, COUNT(channels)) {
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

/* mean and variance move towards the batch's, the latter unbiased. */
TEST(batch_norm_averages) {
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

/* The input of the first layer needs no gradient; the parameters' must still be
 * computed. */
TEST(no_input_gradient) {
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

TEST_EACH(scale, COUNT(channels)) {
    layer_spec spec = {.type = "scale", .settings = "", .in = {channels[_i]}};
    check_all_ways(&spec, 1e-5);
    spec.settings = "bias=yes";
    check_all_ways(&spec, 1e-5);
    spec.frozen = 1;
    check_all_ways(&spec, 1e-5);
}

/* 16-bit types round outputs, and averages of rounded values. */
TEST_EACH(sixteen_bits, 2) {
    static const struct {
        dlc_dtype type;
        double tolerance;
    } types[] = {{DLC_BF16, 1.0 / 128}, {DLC_F16, 1.0 / 1024}};
    static const struct {
        const char *type, *settings;
    } cases[] = {
        {"pooling", "kernel_size=3 stride=2 pad=1"},
        {"pooling", "kernel_size=3 stride=1 pad=1"},
        {"pooling", "kernel_size=2 stride=2"},
        {"pooling", "method=average kernel_size=3 stride=2 pad=1"},
        {"pooling", "method=average kernel_size=3 stride=2"},
        {"pooling", "method=average global=yes"},
        {"lrn", "alpha=0.5"},
        {"lrn", "local_size=3 alpha=1 k=2"},
        {"lrn", "norm_region=within_channel local_size=3"},
        {"scale", "bias=yes"},
        {"upsample", "method=bilinear"},
        {"upsample", "factor=3"},
    };
    static const dlc_shape shapes[] = {
        {4, {2, 16, 6, 5}}, {4, {3, 5, 4, 7}}, {4, {1, 151, 5, 4}}, {4, {1, 72, 4, 3}}};
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

TEST(refusals) {
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
