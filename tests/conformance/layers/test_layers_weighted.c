/* convolution and inner_product, with the relu that they take over. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"
#include "machine.h"

static const struct {
    const char *settings;
    dlc_shape in;
} convolutions[] = {
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

START_TEST(convolution) {
    rig_spec spec = {.type = "convolution",
                     .settings = convolutions[_i].settings,
                     .in = {convolutions[_i].in}};
    check_all_ways(&spec, 2e-5);
}
END_TEST

START_TEST(convolution_with_relu) {
    rig_spec spec = {.type = "convolution",
                     .settings = convolutions[_i].settings,
                     .absorb = _i % 2 ? "negative_slope=0.25" : "",
                     .in = {convolutions[_i].in}};
    check_layer(&spec, 2e-5);
    spec.phase = DLC_PHASE_TEST;
    check_layer(&spec, 2e-5);
}
END_TEST

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

START_TEST(inner_product) {
    rig_spec spec = {.type = "inner_product",
                     .settings = products[_i].settings,
                     .in = {products[_i].in}};
    check_all_ways(&spec, 2e-5);
    spec.absorb = "";
    check_all_ways(&spec, 2e-5);
    spec.absorb = "negative_slope=0.1";
    check_all_ways(&spec, 2e-5);
}
END_TEST

/* Layers of LeNet and cifar10-full at full size: two runs give the same bits, one
 * thread the same numbers. */
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

static void open_and_run(rig *r, const rig_spec *spec) {
    ck_assert_int_eq(rig_open(r, spec), DLC_OK);
    fill_values(r->in_data[0], rig_in_count(r, 0), 1, 1);
    fill_values(r->param_data[0], rig_param_count(r, 0), 2, 1);
    fill_values(r->param_data[1], rig_param_count(r, 1), 3, 1);
    fill_values(r->out_diff, rig_out_count(r), 4, 1);
    ck_assert_int_eq(rig_forward(r), DLC_OK);
    ck_assert_int_eq(rig_backward(r), DLC_OK);
}

START_TEST(repeatable) {
    rig a, b, one;
    rig_spec spec = {.type = large[_i].type,
                     .settings = large[_i].settings,
                     .absorb = "",
                     .in = {large[_i].in}};
    open_and_run(&a, &spec);
    open_and_run(&b, &spec);
    spec.threads = 1;
    open_and_run(&one, &spec);
    ck_assert_double_eq(far_apart(a.out_data, b.out_data, rig_out_count(&a)), 0);
    ck_assert_double_eq(far_apart(a.in_diff[0], b.in_diff[0], rig_in_count(&a, 0)), 0);
    ck_assert_double_le(far_apart(a.out_data, one.out_data, rig_out_count(&a)), 1e-3);
    for (int32_t i = 0; i < 2; i++) {
        int64_t count = rig_param_count(&a, i);
        ck_assert_double_eq(far_apart(a.param_diff[i], b.param_diff[i], count), 0);
        ck_assert_double_le(far_apart(a.param_diff[i], one.param_diff[i], count), 1e-2);
    }
    rig_close(&a);
    rig_close(&b);
    rig_close(&one);
}
END_TEST

/* ---- Gradients that are added to ----------------------------------------------- */

static const struct {
    const char *type, *settings, *absorb;
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

/* Others' gradients are in in_diff; this one's comes to them, rounded once or twice. */
static void check_adds(const rig_spec *spec, double tolerance) {
    rig alone, added;
    rig_spec adding = *spec;
    adding.adds = 1;
    run_rig(&alone, spec);
    ck_assert_int_eq(rig_open(&added, &adding), DLC_OK);
    ck_assert_uint_eq(alone.plan.adds_gradient, 0); /* nobody asked */
    if (machine_layers_are("cudnn"))
        ck_assert_uint_eq(added.plan.adds_gradient, 1);
    int64_t count = rig_in_count(&added, 0);
    float *sum = malloc((size_t)count * sizeof *sum);
    ck_assert_ptr_nonnull(sum);
    double size = 1;
    fill_rig(&added);
    fill_values(added.in_diff[0], count, 77, 1);
    for (int64_t i = 0; i < count; i++) {
        sum[i] = alone.in_diff[0][i];
        if (added.plan.adds_gradient)
            sum[i] += added.in_diff[0][i];
        size = fmax(size, fabs((double)sum[i]));
    }
    ck_assert_int_eq(rig_forward(&added), DLC_OK);
    ck_assert_int_eq(rig_backward(&added), DLC_OK);
    double far = far_apart(sum, added.in_diff[0], count);
    ck_assert_msg(far <= tolerance * size, "%s %s: %g apart, of %g", spec->type,
                  spec->settings, far, size);
    for (int32_t p = 0; p < alone.plan.params; p++)
        check_same_bits(alone.param_diff[p], added.param_diff[p],
                        rig_param_count(&alone, p));
    free(sum);
    rig_close(&added);
    rig_close(&alone);
}

START_TEST(adds_to_what_is_there) {
    static const struct {
        dlc_dtype floats;
        double tolerance;
    } types[] = {{DLC_F32, 1e-5}, {DLC_BF16, 1.0 / 128}, {DLC_F16, 1.0 / 1024}};
    for (int t = 0; t < COUNT(types); t++) {
        rig_spec spec = {.type = shared[_i].type,
                         .settings = shared[_i].settings,
                         .absorb = shared[_i].absorb,
                         .floats = types[t].floats,
                         .in = {shared[_i].in}};
        if (t && !(rig_has(types[t].floats) && rig_takes(spec.type, types[t].floats)))
            continue;
        check_adds(&spec, types[t].tolerance);
    }
}
END_TEST

/* ---- Slices ------------------------------------------------------------------ */

static const struct {
    const char *type, *settings, *absorb;
    dlc_shape in;
} slices[] = {
    {"convolution", "num_output=20 kernel_size=3 pad=1", "", {4, {2, 5, 6, 7}}},
    {"convolution", "num_output=33 kernel_size=3 stride=2", NULL, {4, {3, 16, 9, 9}}},
    {"inner_product", "num_output=37", "negative_slope=0.25", {4, {3, 5, 4, 4}}},
    {"inner_product", "num_output=10 bias=no", NULL, {2, {4, 19}}},
};

/* Channels [first, first + some) of each of `rows` rows, from or into `whole`. */
static void copy_channels(float *whole, float *slice, int64_t rows, int64_t channels,
                          int64_t first, int64_t some, int64_t area, int into) {
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < some * area; i++) {
            float *at = &whole[(n * channels + first) * area + i];
            float *of = &slice[n * some * area + i];
            *(into ? at : of) = *(into ? of : at);
        }
}

/* Runs channels [begin, end) by themselves; what comes of it goes into `found`, which
 * is the whole again when all have been run. */
static void run_slice(const rig_spec *whole_spec, rig *whole, int64_t begin,
                      int64_t end, rig *found) {
    rig r;
    rig_spec spec = *whole_spec;
    spec.slice_begin = begin;
    spec.slice_end = end;
    ck_assert_int_eq(rig_open(&r, &spec), DLC_OK);
    const dlc_shape *out = &r.out[0].shape, *all = &whole->out[0].shape;
    int64_t some = end - begin, channels = all->dims[1];
    int64_t area = dlc_shape_count(out) / (out->dims[0] * some);
    ck_assert_int_eq(out->dims[1], some);
    ck_assert_int_eq(r.plan.params, whole->plan.params);
    memcpy(r.in_data[0], whole->in_data[0],
           (size_t)rig_in_count(&r, 0) * sizeof(float));
    for (int32_t p = 0; p < r.plan.params; p++) {
        int64_t row = rig_param_count(&r, p) / some;
        ck_assert_int_eq(r.param[p].shape.dims[0], some);
        copy_channels(whole->param_data[p], r.param_data[p], 1, channels, begin, some,
                      row, 0);
    }
    copy_channels(whole->out_diff, r.out_diff, out->dims[0], channels, begin, some,
                  area, 0);
    ck_assert_int_eq(rig_forward(&r), DLC_OK);
    ck_assert_int_eq(rig_backward(&r), DLC_OK);
    copy_channels(found->out_data, r.out_data, out->dims[0], channels, begin, some,
                  area, 1);
    for (int32_t p = 0; p < r.plan.params; p++)
        copy_channels(found->param_diff[p], r.param_diff[p], 1, channels, begin, some,
                      rig_param_count(&r, p) / some, 1);
    for (int64_t i = 0; i < rig_in_count(&r, 0); i++)
        found->in_diff[0][i] += r.in_diff[0][i];
    rig_close(&r);
}

static void open_and_fill(const rig_spec *spec, rig *r) {
    ck_assert_int_eq(rig_open(r, spec), DLC_OK);
    fill_values(r->in_data[0], rig_in_count(r, 0), 1, 1);
    fill_values(r->out_diff, rig_out_count(r), 2, 1);
    for (int32_t p = 0; p < r->plan.params; p++)
        fill_values(r->param_data[p], rig_param_count(r, p), (uint64_t)p + 3, 1);
}

/* What slices give is, put together, what the whole layer gives; gradients of the
 * input, which all of them read, add up. */
START_TEST(slices_make_the_whole) {
    rig whole, found;
    rig_spec spec = {.type = slices[_i].type,
                     .settings = slices[_i].settings,
                     .absorb = slices[_i].absorb,
                     .in = {slices[_i].in}};
    if (!(rig_feature(spec.type)->caps & DLC_LAYER_SLICES))
        return;
    open_and_fill(&spec, &whole);
    open_and_fill(&spec, &found);
    ck_assert_int_eq(rig_forward(&whole), DLC_OK);
    /* backward may write over its out_diff */
    float *diff = malloc((size_t)rig_out_count(&whole) * sizeof *diff);
    ck_assert_ptr_nonnull(diff);
    memcpy(diff, whole.out_diff, (size_t)rig_out_count(&whole) * sizeof *diff);
    ck_assert_int_eq(rig_backward(&whole), DLC_OK);
    memcpy(whole.out_diff, diff, (size_t)rig_out_count(&whole) * sizeof *diff);
    free(diff);
    memset(found.in_diff[0], 0, (size_t)rig_in_count(&found, 0) * sizeof(float));
    int64_t channels = whole.out[0].shape.dims[1];
    const int64_t cut[] = {0, 1, channels / 2, channels};
    for (int i = 0; i < COUNT(cut) - 1; i++)
        run_slice(&spec, &whole, cut[i], cut[i + 1], &found);
    ck_assert_double_le(
        far_apart(whole.out_data, found.out_data, rig_out_count(&whole)), 1e-4);
    ck_assert_double_le(
        far_apart(whole.in_diff[0], found.in_diff[0], rig_in_count(&whole, 0)), 1e-4);
    for (int32_t p = 0; p < whole.plan.params; p++)
        ck_assert_double_le(far_apart(whole.param_diff[p], found.param_diff[p],
                                      rig_param_count(&whole, p)),
                            1e-4);
    rig_close(&found);
    rig_close(&whole);
}
END_TEST

START_TEST(groups_have_no_slices) {
    rig_spec spec = {.type = "convolution",
                     .settings = "num_output=4 kernel_size=3 group=2",
                     .in = {SHAPE(2, 4, 5, 4)},
                     .slice_end = 2};
    if (rig_feature("convolution")->caps & DLC_LAYER_SLICES)
        check_refused(&spec, DLC_ERR_UNSUPPORTED, "group = 2 cannot be split");
}
END_TEST

START_TEST(refusals) {
    rig_spec spec = {.type = "convolution", .in = {SHAPE(2, 3, 5, 4)}};
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
    spec = (rig_spec){
        .type = "inner_product", .settings = "num_output=3", .in = {SHAPE(7)}};
    check_refused(&spec, DLC_ERR_CONFIG, "dimensions");
    spec.settings = "num_output=16777216";
    spec.in[0] = SHAPE(1, 1ll << 40);
    check_refused(&spec, DLC_ERR_CONFIG, "weights than any memory holds");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, convolution, 0, COUNT(convolutions));
    tcase_add_loop_test(tests, convolution_with_relu, 0, COUNT(convolutions));
    tcase_add_loop_test(tests, inner_product, 0, COUNT(products));
    tcase_add_loop_test(tests, repeatable, 0, COUNT(large));
    tcase_add_loop_test(tests, adds_to_what_is_there, 0, COUNT(shared));
    tcase_add_loop_test(tests, slices_make_the_whole, 0, COUNT(slices));
    tcase_add_test(tests, groups_have_no_slices);
    tcase_add_test(tests, refusals);
    return run_suite("layers-weighted", tests);
}
