/* convolution, deconvolution and inner_product, with the relu that they fuse. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"
#include "support/test.h"
#include "target.h"

static const struct {
    const char *settings;
    dlc_shape in;
} convolutions[] = {
    /* A few colours, and as many filters as whole vectors. */
    {"num_output=32 kernel_size=5 pad=2", {4, {3, 3, 13, 17}}},
    {"num_output=64 kernel_size=7 pad=3 stride=2", {4, {1, 3, 30, 23}}},
    {"num_output=96 kernel_size=11 stride=4 bias=no", {4, {2, 4, 31, 35}}},
    {"num_output=32 kernel_size=3 stride=3 pad=1", {4, {2, 1, 7, 150}}},
    {"num_output=20 kernel_size=5", {4, {2, 1, 12, 12}}},
    {"num_output=50 kernel_size=5", {4, {2, 20, 9, 7}}},
    {"num_output=32 kernel_size=5 pad=2", {4, {1, 3, 8, 8}}},
    {"num_output=16 kernel_size=3 pad=1", {4, {2, 16, 6, 5}}},
    {"num_output=1 kernel_size=1", {4, {1, 1, 1, 1}}},
    {"num_output=17 kernel_size=1 bias=no", {4, {1, 17, 1, 1}}},
    {"num_output=3 kernel_size=1 stride=3", {4, {2, 5, 7, 8}}},
    {"num_output=7 kernel_size=2 stride=3", {4, {1, 3, 9, 10}}},
    {"num_output=5 kernel_size=3 dilation=2 pad=1", {4, {2, 4, 7, 9}}},
    {"num_output=17 kernel_h=3 kernel_w=1 stride_h=1 stride_w=2 pad_h=1",
     {4, {1, 17, 5, 6}}},
    {"num_output=6 kernel_size=3 group=3 pad=1", {4, {2, 3, 6, 6}}},
    {"num_output=32 kernel_size=3 group=2 pad=1 stride=2", {4, {2, 32, 7, 7}}},
    {"num_output=20 kernel_size=3 group=20 pad=1", {4, {1, 20, 5, 5}}},
    {"num_output=8 kernel_size=3 dilation_h=1 dilation_w=3 pad_w=3", {4, {1, 5, 5, 9}}},
    {"num_output=2 kernel_size=7 pad=3 stride=2", {4, {3, 3, 4, 4}}},
    {"num_output=16 kernel_size=3 pad=1 layout=library", {4, {2, 20, 6, 5}}},
    {"num_output=50 kernel_size=3 layout=library bias=no", {4, {1, 17, 6, 6}}},
};

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

TEST_EACH(convolution, COUNT(convolutions)) {
    layer_spec spec = {.type = "convolution",
                       .settings = convolutions[_i].settings,
                       .in = {convolutions[_i].in}};
    check_all_ways(&spec, 2e-5);
}

TEST_EACH(convolution_with_relu, COUNT(convolutions)) {
    layer_spec spec = {.type = "convolution",
                       .settings = convolutions[_i].settings,
                       .fused = _i % 2 ? "negative_slope=0.25" : "",
                       .in = {convolutions[_i].in}};
    check_layer(&spec, 2e-5);
    spec.phase = DLC_PHASE_TEST;
    check_layer(&spec, 2e-5);
}

static const struct {
    const char *settings;
    dlc_shape in;
} deconvolutions[] = {
    {"num_output=8 kernel_size=2 stride=2", {4, {2, 16, 5, 4}}},
    {"num_output=16 kernel_size=4 stride=2 pad=1", {4, {2, 16, 4, 4}}},
    {"num_output=5 kernel_size=3 stride=2 pad=1 bias=no", {4, {2, 3, 4, 5}}},
    {"num_output=20 kernel_size=3", {4, {1, 17, 3, 2}}},
    {"num_output=1 kernel_size=1", {4, {1, 1, 1, 1}}},
    {"num_output=6 kernel_size=2 stride=2 group=2", {4, {2, 4, 3, 3}}},
    {"num_output=6 kernel_size=4 stride=2 pad=1 group=6", {4, {1, 6, 3, 4}}},
    {"num_output=3 kernel_h=3 kernel_w=1 stride_h=2 stride_w=3 pad_h=1",
     {4, {2, 5, 3, 4}}},
};

TEST_EACH(deconvolution, COUNT(deconvolutions)) {
    layer_spec spec = {.type = "deconvolution",
                       .settings = deconvolutions[_i].settings,
                       .in = {deconvolutions[_i].in}};
    check_all_ways(&spec, 2e-5);
    spec.frozen = 1;
    check_layer(&spec, 2e-5);
    spec.frozen = 0;
    spec.fused = _i % 2 ? "negative_slope=0.25" : "";
    const dlc_layer_ops *ops = fixture_feature(spec.type)->ops;
    if (ops->fuse)
        check_layer(&spec, 2e-5);
}

/* In each type of fewer bits; weights are rounded, too. */
static void check_rounded(layer_spec *spec) {
    static const struct {
        dlc_dtype floats;
        uint32_t math;
        double tolerance;
    } types[] = {{DLC_F32, DLC_MATH_TF32, 1.0 / 512},
                 {DLC_BF16, 0, 1.0 / 64},
                 {DLC_F16, 0, 1.0 / 512}};
    for (int t = 0; t < COUNT(types); t++) {
        spec->floats = types[t].floats;
        spec->math = types[t].math;
        if (types[t].math ||
            (fixture_has(spec->floats) && fixture_takes(spec->type, spec->floats)))
            check_all_ways(spec, types[t].tolerance);
    }
}

TEST_EACH(deconvolution_in_fewer_bits, COUNT(deconvolutions)) {
    layer_spec spec = {.type = "deconvolution",
                       .settings = deconvolutions[_i].settings,
                       .in = {deconvolutions[_i].in}};
    check_rounded(&spec);
}

/* First layers, whose images a family may arrange in a way of its own. */
static const struct {
    const char *settings;
    dlc_shape in;
} first_layers[] = {
    {"num_output=5 kernel_size=5", {4, {2, 3, 9, 7}}},
    {"num_output=6 kernel_size=7 stride=2 pad=3 bias=no", {4, {2, 3, 12, 10}}},
    {"num_output=5 kernel_size=11 stride=4", {4, {1, 3, 23, 19}}},
    {"num_output=4 kernel_size=3 stride=2 pad=1", {4, {2, 3, 7, 9}}},
    {"num_output=3 kernel_size=5 stride=3 pad=1", {4, {1, 1, 13, 17}}},
    {"num_output=3 kernel_size=5 stride=2 pad=4", {4, {2, 2, 5, 8}}},
};

TEST_EACH(first_layer, COUNT(first_layers)) {
    layer_spec spec = {.type = "convolution",
                       .settings = first_layers[_i].settings,
                       .no_gradient = 1,
                       .in = {first_layers[_i].in}};
    check_all_ways(&spec, 2e-5);
    check_rounded(&spec);
}

static const struct {
    const char *settings;
    dlc_shape in;
} products[] = {
    {"num_output=10", {2, {3, 17}}},
    {"num_output=500", {4, {2, 5, 4, 4}}},
    {"num_output=1", {2, {1, 1}}},
    {"num_output=17 bias=no", {4, {3, 20, 3, 2}}},
    {"num_output=64", {4, {2, 64, 4, 4}}},
    {"num_output=3", {3, {4, 3, 5}}},
    {"num_output=5", {6, {2, 2, 3, 2, 1, 3}}},
    {"num_output=10", {4, {1, 1, 1, 1}}},
};

TEST_EACH(inner_product, COUNT(products)) {
    layer_spec spec = {.type = "inner_product",
                       .settings = products[_i].settings,
                       .in = {products[_i].in}};
    check_all_ways(&spec, 2e-5);
    spec.fused = "";
    check_all_ways(&spec, 2e-5);
    spec.fused = "negative_slope=0.1";
    check_all_ways(&spec, 2e-5);
}

static void open_and_run(fixture *r, const layer_spec *spec) {
    ck_assert_int_eq(fixture_open(r, spec), DLC_OK);
    fill_values(r->in_data[0], fixture_in_count(r, 0), 1, 1);
    fill_values(r->param_data[0], fixture_param_count(r, 0), 2, 1);
    fill_values(r->param_data[1], fixture_param_count(r, 1), 3, 1);
    fill_values(r->out_diff, fixture_out_count(r), 4, 1);
    ck_assert_int_eq(fixture_forward(r), DLC_OK);
    ck_assert_int_eq(fixture_backward(r), DLC_OK);
}

/* Backward to the data reads the output of a fused activation alone. */
static const struct {
    const char *type, *settings;
    dlc_shape in;
} kept[] = {
    {"convolution", "num_output=32 kernel_size=3 pad=1", {4, {2, 32, 4, 4}}},
    {"convolution", "num_output=5 kernel_size=3 layout=library", {4, {2, 4, 5, 5}}},
    {"convolution", "num_output=5 kernel_size=5", {4, {16, 3, 6, 6}}},
    {"inner_product", "num_output=10", {2, {4, 12}}},
};

TEST_EACH(frozen, COUNT(kept)) {
    for (int fused = 0; fused < 2; fused++) {
        layer_spec spec = {.type = kept[_i].type,
                           .settings = kept[_i].settings,
                           .fused = fused ? "" : NULL,
                           .frozen = 1,
                           .in = {kept[_i].in}};
        fixture r;
        check_layer(&spec, 2e-5);
        open_and_run(&r, &spec);
        ck_assert_uint_eq(r.memory.reads_in, 0);
        fixture_close(&r);
    }
}

/* Layers of LeNet and cifar10-full at full size: two runs are bitwise identical, and so
 * is a run with one thread. */
static const struct {
    const char *type, *settings;
    dlc_shape in;
} large[] = {
    {"convolution", "num_output=20 kernel_size=5", {4, {64, 1, 28, 28}}},
    {"convolution", "num_output=50 kernel_size=5", {4, {64, 20, 12, 12}}},
    {"convolution", "num_output=32 kernel_size=5 pad=2", {4, {100, 32, 16, 16}}},
    {"convolution",
     "num_output=50 kernel_size=5 layout=library",
     {4, {64, 20, 12, 12}}},
    {"inner_product", "num_output=500", {4, {64, 50, 4, 4}}},
    {"inner_product", "num_output=10", {2, {100, 1024}}},
};

TEST_EACH(repeatable, COUNT(large)) {
    fixture a, b, one;
    layer_spec spec = {.type = large[_i].type,
                       .settings = large[_i].settings,
                       .fused = "",
                       .in = {large[_i].in}};
    open_and_run(&a, &spec);
    open_and_run(&b, &spec);
    spec.threads = 1;
    open_and_run(&one, &spec);
    ck_assert_double_eq(
        largest_difference(a.out_data, b.out_data, fixture_out_count(&a)), 0);
    ck_assert_double_eq(
        largest_difference(a.in_diff[0], b.in_diff[0], fixture_in_count(&a, 0)), 0);
    ck_assert_double_le(
        largest_difference(a.out_data, one.out_data, fixture_out_count(&a)), 1e-3);
    for (int32_t i = 0; i < 2; i++) {
        int64_t count = fixture_param_count(&a, i);
        ck_assert_double_eq(largest_difference(a.param_diff[i], b.param_diff[i], count),
                            0);
        ck_assert_double_le(
            largest_difference(a.param_diff[i], one.param_diff[i], count), 1e-2);
    }
    fixture_close(&a);
    fixture_close(&b);
    fixture_close(&one);
}

/* ---- Accumulated gradients ------------------------------------------------------ */

static const struct {
    const char *type, *settings, *fused;
    dlc_shape in;
} shared[] = {
    {"convolution", "num_output=32 kernel_size=3 pad=1", "", {4, {2, 16, 9, 7}}},
    {"convolution", "num_output=24 kernel_size=1 bias=no", NULL, {4, {3, 64, 8, 8}}},
    {"convolution", "num_output=16 kernel_size=1 stride=2", "", {4, {2, 32, 7, 8}}},
    {"convolution", "num_output=48 kernel_size=3 stride=2", "", {4, {1, 16, 9, 9}}},
    {"convolution",
     "num_output=32 kernel_size=3 pad=1 group=2",
     NULL,
     {4, {2, 32, 6, 6}}},
    {"inner_product", "num_output=40", "", {4, {3, 8, 4, 4}}},
    {"inner_product", "num_output=16 bias=no", NULL, {2, {5, 24}}},
};

/* in_diff has the gradients of other readers; this layer's are added, rounded once or
 * twice. */
static void check_accumulate(const layer_spec *spec, double tolerance) {
    fixture alone, added;
    layer_spec adding = *spec;
    adding.accumulate = 1;
    run_fixture(&alone, spec);
    ck_assert_int_eq(fixture_open(&added, &adding), DLC_OK);
    ck_assert_uint_eq(alone.memory.accumulates_gradient, 0); /* not requested */
    if (target_layers_are("cudnn"))
        ck_assert_uint_eq(added.memory.accumulates_gradient, 1);
    int64_t count = fixture_in_count(&added, 0);
    float *sum = malloc((size_t)count * sizeof *sum);
    ck_assert_ptr_nonnull(sum);
    double size = 1;
    fill_fixture(&added);
    fill_values(added.in_diff[0], count, 77, 1);
    for (int64_t i = 0; i < count; i++) {
        sum[i] = alone.in_diff[0][i];
        if (added.memory.accumulates_gradient)
            sum[i] += added.in_diff[0][i];
        size = fmax(size, fabs((double)sum[i]));
    }
    ck_assert_int_eq(fixture_forward(&added), DLC_OK);
    ck_assert_int_eq(fixture_backward(&added), DLC_OK);
    double far = largest_difference(sum, added.in_diff[0], count);
    ck_assert_msg(far <= tolerance * size, "%s %s: %g apart, of %g", spec->type,
                  spec->settings, far, size);
    for (int32_t p = 0; p < alone.memory.params; p++)
        check_same_bits(alone.param_diff[p], added.param_diff[p],
                        fixture_param_count(&alone, p));
    free(sum);
    fixture_close(&added);
    fixture_close(&alone);
}

TEST_EACH(accumulates, COUNT(shared)) {
    static const struct {
        dlc_dtype floats;
        double tolerance;
    } types[] = {{DLC_F32, 1e-5}, {DLC_BF16, 1.0 / 128}, {DLC_F16, 1.0 / 1024}};
    for (int t = 0; t < COUNT(types); t++) {
        layer_spec spec = {.type = shared[_i].type,
                           .settings = shared[_i].settings,
                           .fused = shared[_i].fused,
                           .floats = types[t].floats,
                           .in = {shared[_i].in}};
        if (t && !(fixture_has(types[t].floats) &&
                   fixture_takes(spec.type, types[t].floats)))
            continue;
        check_accumulate(&spec, types[t].tolerance);
    }
}

/* ---- Channel-parallel layers ---------------------------------------------------- */

static const struct {
    const char *type, *settings, *fused;
    dlc_shape in;
} slices[] = {
    {"convolution", "num_output=20 kernel_size=3 pad=1", "", {4, {2, 5, 6, 7}}},
    {"convolution", "num_output=33 kernel_size=3 stride=2", NULL, {4, {3, 16, 9, 9}}},
    {"inner_product", "num_output=37", "negative_slope=0.25", {4, {3, 5, 4, 4}}},
    {"inner_product", "num_output=10 bias=no", NULL, {2, {4, 19}}},
};

/* Copies channels [first, first + some) of each of `rows` rows, from or into `whole`.
 */
static void copy_channels(float *whole, float *slice, int64_t rows, int64_t channels,
                          int64_t first, int64_t some, int64_t area, int into) {
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < some * area; i++) {
            float *at = &whole[(n * channels + first) * area + i];
            float *of = &slice[n * some * area + i];
            *(into ? at : of) = *(into ? of : at);
        }
}

/* Runs channels [begin, end) alone and copies the results into `found`, which is
 * complete when all have been run. */
static void run_channels(const layer_spec *whole_spec, fixture *whole, int64_t begin,
                         int64_t end, fixture *found) {
    fixture r;
    layer_spec spec = *whole_spec;
    spec.channel_begin = begin;
    spec.channel_end = end;
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    const dlc_shape *out = &r.out[0].shape, *all = &whole->out[0].shape;
    int64_t some = end - begin, channels = all->dims[1];
    int64_t area = dlc_shape_count(out) / (out->dims[0] * some);
    ck_assert_int_eq(out->dims[1], some);
    ck_assert_int_eq(r.memory.params, whole->memory.params);
    memcpy(r.in_data[0], whole->in_data[0],
           (size_t)fixture_in_count(&r, 0) * sizeof(float));
    for (int32_t p = 0; p < r.memory.params; p++) {
        int64_t row = fixture_param_count(&r, p) / some;
        ck_assert_int_eq(r.param[p].shape.dims[0], some);
        copy_channels(whole->param_data[p], r.param_data[p], 1, channels, begin, some,
                      row, 0);
    }
    copy_channels(whole->out_diff, r.out_diff, out->dims[0], channels, begin, some,
                  area, 0);
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    copy_channels(found->out_data, r.out_data, out->dims[0], channels, begin, some,
                  area, 1);
    for (int32_t p = 0; p < r.memory.params; p++)
        copy_channels(found->param_diff[p], r.param_diff[p], 1, channels, begin, some,
                      fixture_param_count(&r, p) / some, 1);
    for (int64_t i = 0; i < fixture_in_count(&r, 0); i++)
        found->in_diff[0][i] += r.in_diff[0][i];
    fixture_close(&r);
}

static void open_and_fill(const layer_spec *spec, fixture *r) {
    ck_assert_int_eq(fixture_open(r, spec), DLC_OK);
    fill_values(r->in_data[0], fixture_in_count(r, 0), 1, 1);
    fill_values(r->out_diff, fixture_out_count(r), 2, 1);
    for (int32_t p = 0; p < r->memory.params; p++)
        fill_values(r->param_data[p], fixture_param_count(r, p), (uint64_t)p + 3, 1);
}

/* The results of all parts together equal those of the whole layer; gradients of the
 * input, which all parts read, are added. */
TEST_EACH(channel_parallel, COUNT(slices)) {
    fixture whole, found;
    layer_spec spec = {.type = slices[_i].type,
                       .settings = slices[_i].settings,
                       .fused = slices[_i].fused,
                       .in = {slices[_i].in}};
    if (!(fixture_feature(spec.type)->caps & DLC_LAYER_CHANNEL_PARALLEL))
        return;
    open_and_fill(&spec, &whole);
    open_and_fill(&spec, &found);
    ck_assert_int_eq(fixture_forward(&whole), DLC_OK);
    /* backward may overwrite its out_diff */
    float *diff = malloc((size_t)fixture_out_count(&whole) * sizeof *diff);
    ck_assert_ptr_nonnull(diff);
    memcpy(diff, whole.out_diff, (size_t)fixture_out_count(&whole) * sizeof *diff);
    ck_assert_int_eq(fixture_backward(&whole), DLC_OK);
    memcpy(whole.out_diff, diff, (size_t)fixture_out_count(&whole) * sizeof *diff);
    free(diff);
    memset(found.in_diff[0], 0, (size_t)fixture_in_count(&found, 0) * sizeof(float));
    int64_t channels = whole.out[0].shape.dims[1];
    const int64_t cut[] = {0, 1, channels / 2, channels};
    for (int i = 0; i < COUNT(cut) - 1; i++)
        run_channels(&spec, &whole, cut[i], cut[i + 1], &found);
    ck_assert_double_le(
        largest_difference(whole.out_data, found.out_data, fixture_out_count(&whole)),
        1e-4);
    ck_assert_double_le(largest_difference(whole.in_diff[0], found.in_diff[0],
                                           fixture_in_count(&whole, 0)),
                        1e-4);
    for (int32_t p = 0; p < whole.memory.params; p++)
        ck_assert_double_le(largest_difference(whole.param_diff[p], found.param_diff[p],
                                               fixture_param_count(&whole, p)),
                            1e-4);
    fixture_close(&found);
    fixture_close(&whole);
}

TEST(groups_are_not_channel_parallel) {
    layer_spec spec = {.type = "convolution",
                       .settings = "num_output=4 kernel_size=3 group=2",
                       .in = {SHAPE(2, 4, 5, 4)},
                       .channel_end = 2};
    if (fixture_feature("convolution")->caps & DLC_LAYER_CHANNEL_PARALLEL)
        check_refused(&spec, DLC_ERR_UNSUPPORTED, "group = 2 cannot be split");
}

TEST(refusals) {
    layer_spec spec = {.type = "convolution", .in = {SHAPE(2, 3, 5, 4)}};
    spec.settings = "num_output=4";
    check_refused(&spec, DLC_ERR_CONFIG, "kernel_size");
    spec.settings = "num_output=4 kernel_h=3";
    check_refused(&spec, DLC_ERR_CONFIG, "kernel_w");
    spec.settings = "num_output=4 kernel_size=5";
    check_refused(&spec, DLC_ERR_CONFIG, "2x3x5x4");
    spec.settings = "num_output=4 kernel_size=3 dilation=3";
    check_refused(&spec, DLC_ERR_CONFIG, "7");
    spec.settings = "num_output=4 kernel_size=3 group=2";
    check_refused(&spec, DLC_ERR_CONFIG, "group");
    spec.settings = "num_output=3 kernel_size=1";
    spec.in[0] = SHAPE(2, 3);
    check_refused(&spec, DLC_ERR_CONFIG, "2x3");
    spec.in[0] = SHAPE(2, 3, 5, 4);
    spec.labels = 1;
    check_refused(&spec, DLC_ERR_CONFIG, "float32");
    spec.labels = 0;
    spec.inputs = 2;
    spec.in[1] = spec.in[0];
    check_refused(&spec, DLC_ERR_CONFIG, "1 input");
    spec = (layer_spec){
        .type = "inner_product", .settings = "num_output=3", .in = {SHAPE(7)}};
    check_refused(&spec, DLC_ERR_CONFIG, "dimensions");
    spec.settings = "num_output=16777216";
    spec.in[0] = SHAPE(1, 1ll << 40);
    check_refused(&spec, DLC_ERR_CONFIG, "weights than any memory holds");
}
