/* Depthwise convolutions by our own kernels: compared with plain references and with
 * oneDNN's, in test nets that share a train net's weights, with any number of threads;
 * and when they are chosen. */
#include "checker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"
#include "target.h"

/* Channels that are no multiple of vectors or of blocks, images that are no multiple of
 * the kernels' columns, smaller than the window, padded on no, both or most sides;
 * windows and strides with and without code of their own, and larger than each other.
 */
static const struct {
    const char *settings;
    dlc_shape in;
} convolutions[] = {
    {"num_output=5 group=5 kernel_size=3 pad=1", {4, {2, 5, 6, 9}}},
    {"num_output=16 group=16 kernel_size=3 pad=1", {4, {2, 16, 8, 7}}},
    {"num_output=40 group=40 kernel_size=3", {4, {1, 40, 5, 10}}},
    {"num_output=16 group=16 kernel_size=3 pad=1 stride=2", {4, {2, 16, 8, 7}}},
    {"num_output=40 group=40 kernel_size=3 pad=1 stride=2", {4, {1, 40, 5, 17}}},
    {"num_output=5 group=5 kernel_size=3 stride=2 bias=no", {4, {3, 5, 7, 4}}},
    {"num_output=16 group=16 kernel_size=5 pad=2", {4, {1, 16, 9, 11}}},
    {"num_output=40 group=40 kernel_size=5 pad=2 stride=2", {4, {1, 40, 6, 15}}},
    {"num_output=24 group=24 kernel_size=5 pad=4", {4, {1, 24, 2, 3}}},
    {"num_output=8 group=8 kernel_h=5 kernel_w=3 pad_h=2 stride_h=2 stride_w=1",
     {4, {2, 8, 9, 5}}},
    {"num_output=8 group=8 kernel_h=3 kernel_w=5 pad_w=1 stride_h=1 stride_w=2",
     {4, {2, 8, 4, 12}}},
    {"num_output=16 group=16 kernel_size=1", {4, {2, 16, 3, 8}}},
    {"num_output=20 group=20 kernel_size=1 stride=2", {4, {1, 20, 5, 6}}},
    {"num_output=20 group=20 kernel_size=2 stride=3 pad=1", {4, {1, 20, 7, 11}}},
    {"num_output=16 group=16 kernel_size=4 pad=1 stride=2", {4, {1, 16, 8, 9}}},
    {"num_output=16 group=16 kernel_size=7 pad=3", {4, {1, 16, 6, 9}}},
    {"num_output=5 group=5 kernel_size=11 pad=5 stride=4", {4, {1, 5, 9, 19}}},
    {"num_output=2 group=2 kernel_size=3 pad=1", {4, {4, 2, 5, 5}}},
};

/* More than one chunk of rows, and of channels. */
static const struct {
    const char *settings;
    dlc_shape in;
} large[] = {
    {"num_output=16 group=16 kernel_size=3 pad=1", {4, {2, 16, 70, 61}}},
    {"num_output=40 group=40 kernel_size=3 pad=1 stride=2", {4, {3, 40, 57, 44}}},
    {"num_output=32 group=32 kernel_size=5 pad=2", {4, {5, 32, 20, 33}}},
    {"num_output=528 group=528 kernel_size=3 pad=1", {4, {4, 528, 7, 7}}},
    {"num_output=530 group=530 kernel_size=5 pad=2 stride=2", {4, {2, 530, 14, 14}}},
    {"num_output=24 group=24 kernel_size=4 stride=3", {4, {2, 24, 31, 30}}},
};

static const struct {
    dlc_dtype floats;
    double tolerance;
} types[] = {{DLC_F32, 1e-5}, {DLC_BF16, 1.0 / 64}};

static int chooses(const layer_spec *spec) {
    return describes(spec, "own:") && describes(spec, "depthwise");
}

static int has_type(int type) {
    return types[type].floats == DLC_F32 || fixture_has(types[type].floats);
}

static int begin(int argc, char **argv) {
    if (!target_layers_are("onednn"))
        return tests_skip("only oneDNN's layers have depthwise kernels of their own");
    return layers_begin(argc, argv);
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

TEST_EACH(reference, COUNT(convolutions)) {
    for (int type = 0; type < COUNT(types); type++) {
        layer_spec spec = {.type = "convolution",
                           .settings = convolutions[_i].settings,
                           .in = {convolutions[_i].in},
                           .floats = types[type].floats};
        if (!has_type(type))
            continue;
        ck_assert(chooses(&spec));
        check_all_ways(&spec, types[type].tolerance);
        /* Rounded weights may move an output across the kink of the relu. */
        if (spec.floats != DLC_F32)
            spec.phase = DLC_PHASE_TEST;
        spec.fused = "negative_slope=0.25";
        check_layer(&spec, types[type].tolerance);
        spec.fused = "";
        spec.layout = "last";
        check_layer(&spec, types[type].tolerance);
    }
}

/* Relative to the largest number. */
static void check_near(const float *a, const float *b, int64_t count, double most) {
    double size = 0;
    for (int64_t i = 0; i < count; i++)
        size = fabs((double)b[i]) > size ? fabs((double)b[i]) : size;
    ck_assert_double_le(largest_difference(a, b, count), most * size);
}

static void check_library(layer_spec spec, double most) {
    fixture own, library;
    char text[256];
    ck_assert(chooses(&spec));
    run_fixture(&own, &spec);
    (void)snprintf(text, sizeof text, "%s layout=library", spec.settings);
    spec.settings = text;
    ck_assert(!chooses(&spec));
    run_fixture(&library, &spec);
    check_near(own.out_data, library.out_data, fixture_out_count(&own), most);
    if (spec.phase != DLC_PHASE_TEST) {
        check_near(own.in_diff[0], library.in_diff[0], fixture_in_count(&own, 0), most);
        for (int32_t p = 0; p < own.memory.params; p++)
            check_near(own.param_diff[p], library.param_diff[p],
                       fixture_param_count(&own, p), most);
    }
    fixture_close(&own);
    fixture_close(&library);
}

TEST_EACH(library, COUNT(large)) {
    for (int type = 0; type < COUNT(types); type++) {
        layer_spec spec = {.type = "convolution",
                           .settings = large[_i].settings,
                           .in = {large[_i].in},
                           .floats = types[type].floats};
        /* Both round the same sums to bfloat16, now and then to neighbours. */
        double most = types[type].floats == DLC_F32 ? 1e-5 : 1.0 / 128;
        if (!has_type(type))
            continue;
        check_library(spec, most);
        spec.layout = "last";
        check_library(spec, most);
        spec.fused = "negative_slope=0.25";
        check_library(spec, most);
        if (large[_i].in.dims[3] >
            32) { /* oneDNN's kernel has shorter rows of blocks */
            spec.layout = "blocked";
            check_library(spec, most);
        }
        spec.fused = "";
        spec.phase = DLC_PHASE_TEST;
        check_library(spec, most);
    }
}

TEST_EACH(any_number_of_threads, COUNT(large)) {
    for (int type = 0; type < COUNT(types); type++) {
        const layer_spec spec = {.type = "convolution",
                                 .settings = large[_i].settings,
                                 .in = {large[_i].in},
                                 .floats = types[type].floats};
        if (has_type(type))
            check_any_number_of_threads(spec);
    }
}

/* NaN in one number of the input reaches what reads it, and its gradients. */
TEST(nan_spreads) {
    fixture r;
    const layer_spec spec = {.type = "convolution",
                             .settings = "num_output=16 group=16 kernel_size=3 pad=1",
                             .fused = "",
                             .in = {SHAPE(1, 16, 5, 9)}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    fill_fixture(&r);
    r.in_data[0][4 * 45 + 2 * 9 + 4] = NAN;
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    int count = 0;
    for (int64_t i = 0; i < fixture_out_count(&r); i++)
        count += isnan(r.out_data[i]) != 0;
    ck_assert_int_eq(count, 9);
    ck_assert(isnan(r.out_data[4 * 45 + 1 * 9 + 3]));
    fixture_close(&r);
}

static int chosen(const char *settings, dlc_shape in) {
    layer_spec spec = {.type = "convolution", .settings = settings, .in = {in}};
    return chooses(&spec);
}

TEST(choice) {
    ck_assert(chosen("num_output=64 kernel_size=3 pad=1 group=64", SHAPE(2, 64, 9, 9)));
    ck_assert(chosen("num_output=64 kernel_size=3 pad=1 group=64 algorithm=direct",
                     SHAPE(2, 64, 9, 9)));
    ck_assert(!chosen("num_output=64 kernel_size=3 pad=1 group=64 layout=library",
                      SHAPE(2, 64, 9, 9)));
    ck_assert(
        !chosen("num_output=128 kernel_size=3 pad=1 group=64", SHAPE(2, 64, 9, 9)));
    ck_assert(
        !chosen("num_output=64 kernel_size=3 pad=1 group=32", SHAPE(2, 64, 9, 9)));
    ck_assert(!chosen("num_output=64 kernel_size=3 pad=2 dilation=2 group=64",
                      SHAPE(2, 64, 9, 9)));
    ck_assert(!chosen("num_output=8 kernel_size=12 group=8", SHAPE(2, 8, 14, 14)));
    ck_assert(
        !chosen("num_output=8 kernel_size=5 stride=5 group=8", SHAPE(2, 8, 9, 9)));
    ck_assert(!chosen("num_output=1 kernel_size=3", SHAPE(2, 1, 9, 9)));
}

/* Images stay as they are stored, if the kernels can read them so. */
TEST(layouts) {
    layer_spec spec = {.type = "convolution",
                       .settings = "num_output=32 kernel_size=3 group=32",
                       .in = {SHAPE(2, 32, 9, 9)}};
    ck_assert(describes(&spec, "channels_last"));
    spec.layout = "last";
    ck_assert(describes(&spec, "channels_last"));
    spec.layout = "blocked";
    ck_assert(!chooses(&spec));
    spec.in[0].dims[3] = 40;
    ck_assert(describes(&spec, "depthwise blocked"));
    spec.in[0].dims[3] = 9;
    spec.settings = "num_output=32 kernel_size=3 group=32 layout=channels_last";
    ck_assert(describes(&spec, "channels_last"));
}

TEST(test_nets) {
    static const char *const settings[] = {
        "num_output=40 kernel_size=3 pad=1 group=40",
        "num_output=40 kernel_size=3 pad=1 group=40 layout=library",
    };
    for (int pair = 0; pair < 4; pair++)
        for (int type = 0; type < COUNT(types); type++) {
            layer_spec train = {.type = "convolution",
                                .settings = settings[pair % 2],
                                .in = {SHAPE(2, 40, 9, 8)},
                                .floats = types[type].floats};
            layer_spec test = train;
            test.settings = settings[pair / 2];
            test.in[0].dims[0] = 3;
            if (has_type(type))
                check_test_net(&train, &test, types[type].tolerance);
        }
}
