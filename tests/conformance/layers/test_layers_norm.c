/* Batch normalisation in every layout, with everything that it fuses, in both types and
 * with any number of threads. */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "support/test.h"
#include "target.h"

static const dlc_shape shapes[] = {
    {4, {16, 3, 2, 2}},  {4, {16, 5, 3, 3}},   {4, {16, 8, 4, 5}},
    {4, {16, 16, 5, 5}}, {4, {16, 20, 1, 7}},  {4, {16, 24, 2, 4}},
    {4, {16, 70, 2, 1}}, {4, {16, 300, 1, 1}}, {4, {16, 12, 9, 11}},
    {4, {16, 33, 6, 7}}, {4, {16, 144, 3, 3}},
};
static const char *const layouts[] = {NULL, "last", "blocked", "batch_blocked"};

static const struct {
    const char *type, *settings;
} activations[] = {{NULL, NULL},
                   {NULL, ""},
                   {NULL, "negative_slope=0.25"},
                   {"clip", "min=0 max=0.75"},
                   {"clip", "min=-0.5 max=1"}};

static layer_spec spec_of(int shape, int layout, int activation) {
    layer_spec spec = {.type = "batch_norm",
                       .settings = "",
                       .in = {shapes[shape]},
                       .layout = layouts[layout],
                       .fused = activations[activation].settings,
                       .fused_type = activations[activation].type};
    if (!spec.layout || strcmp(spec.layout, "batch_blocked") != 0)
        spec.in[0].dims[0] = 5;
    return spec;
}

/* Each shape and layout with some of the activations, in rotation. */
static int skips(int shape, int layout, int activation, int share) {
    return (shape + layout + activation) % share != 0;
}

static void check_phases(layer_spec *spec, double tolerance) {
    spec->phase = DLC_PHASE_TRAIN;
    check_layer(spec, tolerance);
    spec->phase = DLC_PHASE_TEST;
    check_layer(spec, tolerance);
}

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

TEST_EACH(every_layout, COUNT(shapes)) {
    for (int layout = 0; layout < COUNT(layouts); layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            layer_spec spec = spec_of(_i, layout, activation);
            spec.in_place = activation % 2;
            if (skips(_i, layout, activation, 2))
                continue;
            check_phases(&spec, 2e-4);
        }
}

/* The fused sum with a further input, as in residual nets. */
TEST_EACH(fused_sum, COUNT(shapes)) {
    for (int layout = 0; layout < COUNT(layouts); layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            layer_spec spec = spec_of(_i, layout, activation);
            spec.residual = 1;
            spec.in_place = activation % 3;
            if (skips(_i, layout, activation, 3))
                continue;
            check_phases(&spec, 2e-4);
            spec.phase = DLC_PHASE_TRAIN;
            spec.settings = "use_global_stats=yes scale_bias=no";
            check_layer(&spec, 2e-4);
        }
}

/* With known statistics, backward reads the input for the gradient of the scale alone.
 */
TEST_EACH(input_not_kept, COUNT(shapes)) {
    for (int layout = 0; layout < COUNT(layouts); layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            layer_spec spec = spec_of(_i, layout, activation);
            spec.frozen = activation % 2;
            spec.settings = spec.frozen ? "use_global_stats=yes"
                                        : "use_global_stats=yes scale_bias=no";
            spec.residual = activation / 2 % 2;
            spec.in_place = layout % 2;
            fixture r;
            run_fixture(&r, &spec);
            ck_assert_uint_eq(r.memory.reads_in, 0);
            fixture_close(&r);
            check_layer(&spec, 2e-4);
        }
}

/* Half a unit in the last of eight bits, for the largest numbers, and as much if the
 * gradient of a sum is rounded on its way. */
TEST_EACH(bfloat16, COUNT(shapes)) {
    if (!fixture_has(DLC_BF16))
        return;
    for (int layout = 0; layout < 3; layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            layer_spec spec = spec_of(_i, layout, activation);
            spec.floats = DLC_BF16;
            if (skips(_i, layout, activation, 3))
                continue;
            check_phases(&spec, 1.0 / 256);
            spec.residual = 1;
            /* A value that was rounded to a bound counts as beyond it. */
            if (activations[activation].type)
                spec.phase = DLC_PHASE_TEST, check_layer(&spec, 1.0 / 256);
            else
                check_phases(&spec, 1.0 / 128);
        }
}

/* Large enough for threads to share channels, or for each to have its own. */
TEST_EACH(any_number_of_threads, 3) {
    static const dlc_shape large[] = {
        {4, {16, 32, 24, 24}}, {4, {16, 640, 3, 3}}, {4, {16, 3, 30, 30}}};
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        layer_spec spec = spec_of(0, layout, 1);
        spec.in[0] = large[_i];
        spec.residual = layout % 2;
        check_any_number_of_threads(spec);
    }
}

/* More channels than a group of a row has. */
TEST(many_channels) {
    for (int activation = 0; activation < 2; activation++) {
        layer_spec spec = spec_of(0, 1, activation);
        spec.in[0] = SHAPE(7, 2075, 1, 2);
        check_phases(&spec, 2e-4);
        spec.residual = 1;
        check_phases(&spec, 2e-4);
        spec.residual = 0;
        spec.floats = DLC_BF16;
        if (fixture_has(DLC_BF16))
            check_phases(&spec, 1.0 / 256);
    }
}

/* The outputs and gradients of two layouts. */
static void check_near(const fixture *a, const fixture *b, double tolerance) {
    int64_t count = fixture_out_count(a), ones = 0;
    for (int64_t i = 0; i < count; i++)
        if (!(a->out_data[i] >= 0))
            ck_abort_msg("output %lld is %g", (long long)i, (double)a->out_data[i]);
        else
            ones += a->out_data[i] > 0;
    ck_assert_int_gt(ones, count / 4);
    ck_assert_double_le(largest_difference(a->out_data, b->out_data, count), tolerance);
    ck_assert_double_le(largest_difference(a->in_diff[0], b->in_diff[0], count),
                        tolerance);
}

/* A tensor that exceeds the caches is written with streaming stores, of parts of cache
 * lines or of whole ones, except where it overwrites what is read. */
TEST_EACH(streaming_stores, 6) {
    static const struct {
        dlc_shape shape;
        dlc_dtype floats;
    } large[] = {{{4, {16, 48, 54, 54}}, DLC_F32},
                 {{4, {16, 48, 76, 76}}, DLC_BF16},
                 {{4, {16, 64, 66, 66}}, DLC_BF16}};
    if (large[_i / 2].floats == DLC_BF16 && !fixture_has(DLC_BF16))
        return;
    for (int layout = 1; layout < 3; layout++) {
        layer_spec spec = spec_of(0, layout, 1);
        spec.in[0] = large[_i / 2].shape;
        spec.floats = large[_i / 2].floats;
        spec.in_place = _i % 2;
        fixture streamed, plain;
        run_fixture(&streamed, &spec);
        spec.layout = NULL; /* not in whole vectors, so without streaming stores */
        run_fixture(&plain, &spec);
        check_near(&streamed, &plain, spec.floats == DLC_BF16 ? 1.0 / 64 : 1e-5);
        fixture_close(&plain);
        fixture_close(&streamed);
    }
}

/* The variance of numbers far from zero, where a sum of squares loses it. */
TEST(far_from_zero) {
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        fixture r;
        layer_spec spec = spec_of(1, layout, 0);
        spec.settings = "momentum=0";
        ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
        fill_fixture(&r);
        const int64_t *d = r.in[0].shape.dims, points = d[2] * d[3];
        for (int64_t i = 0; i < fixture_in_count(&r, 0); i++) /* exact in float32 */
            r.in_data[0][i] = 4096.0f + (float)(i % points % 3 - 1) / 8;
        ck_assert_int_eq(fixture_forward(&r), DLC_OK);
        double n = (double)(d[0] * points), want = 2.0 / 3 / 64 * n / (n - 1);
        for (int64_t c = 0; c < d[1]; c++) {
            ck_assert_float_eq(r.param_data[2][c], 4096.0f);
            ck_assert_double_eq_tol((double)r.param_data[3][c], want, 1e-6 * want);
        }
        fixture_close(&r);
    }
}

/* Recomputed outputs are bitwise identical, and running averages stay. */
TEST_EACH(recompute, COUNT(shapes)) {
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        fixture once, twice;
        layer_spec spec = spec_of(_i, layout, 2);
        ck_assert_int_eq(fixture_open(&once, &spec), DLC_OK);
        ck_assert_int_eq(fixture_open(&twice, &spec), DLC_OK);
        fill_fixture(&once);
        fill_fixture(&twice);
        ck_assert_int_eq(fixture_forward(&once), DLC_OK);
        ck_assert_int_eq(fixture_forward(&twice), DLC_OK);
        ck_assert_int_eq(fixture_recompute(&twice), DLC_OK);
        ck_assert_int_eq(fixture_backward(&once), DLC_OK);
        ck_assert_int_eq(fixture_backward(&twice), DLC_OK);
        check_same_results(&once, &twice);
        fixture_close(&once);
        fixture_close(&twice);
    }
}

/* The gradient is zero exactly where forward was bounded, however close to the bound:
 * both must round alike. */
TEST(mask_agrees) {
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        fixture r;
        layer_spec spec = spec_of(4, layout, 1);
        ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
        fill_fixture(&r);
        int64_t count = fixture_in_count(&r, 0), channels = r.in[0].shape.dims[1];
        for (int64_t c = 0; c < channels; c++) { /* outputs around zero, tiny */
            r.param_data[0][c] = 1e-6f;
            r.param_data[1][c] = 0;
        }
        for (int64_t i = 0; i < count; i++) {
            r.in_data[0][i] = 1 + 1e-6f * (float)(i * 7919 % 5);
            r.out_diff[i] = 1;
        }
        r.unwanted = 1;
        ck_assert_int_eq(fixture_forward(&r), DLC_OK);
        ck_assert_int_eq(fixture_backward(&r), DLC_OK);
        int64_t size = count / channels;
        for (int64_t c = 0; c < channels; c++) { /* the bias' gradient counts them */
            int64_t points = r.in[0].shape.dims[2] * r.in[0].shape.dims[3], above = 0;
            for (int64_t i = 0; i < size; i++)
                above += r.out_data[(i / points * channels + c) * points + i % points] >
                         0;
            ck_assert_float_eq(r.param_diff[1][c], (float)above);
        }
        fixture_close(&r);
    }
}

static dlc_status fusing(const char *type, const char *settings, int residual) {
    fixture r;
    layer_spec spec = {.type = "batch_norm",
                       .settings = "",
                       .fused = settings,
                       .fused_type = type,
                       .residual = residual,
                       .in = {SHAPE(2, 2, 2, 2)}};
    dlc_status status = fixture_open(&r, &spec);
    if (status == DLC_OK) {
        ck_assert_int_eq(r.ops->fuse(r.layer, fixture_feature("relu"), NULL),
                         DLC_ERR_UNSUPPORTED);
        /* The sum is added before the relu, so one that follows it cannot be fused. */
        dlc_settings *sum = target_settings(fixture_feature("eltwise"), "");
        ck_assert_int_eq(r.ops->fuse(r.layer, fixture_feature("eltwise"), sum),
                         DLC_ERR_UNSUPPORTED);
        dlc_settings_free(sum);
        char text[64] = "";
        r.ops->describe(r.layer, text, sizeof text);
        ck_assert_ptr_nonnull(strstr(text, type ? " +clip" : " +relu"));
        ck_assert_int_eq(strstr(text, " +sum") != NULL, residual);
    }
    fixture_close(&r);
    return status;
}

/* An activation that would change the zeros of padding is not fused. */
TEST(fuse) {
    ck_assert_int_eq(fusing(NULL, "", 0), DLC_OK);
    ck_assert_int_eq(fusing(NULL, "negative_slope=2", 1), DLC_OK);
    ck_assert_int_eq(fusing("clip", "", 1), DLC_OK);
    ck_assert_int_eq(fusing("clip", "min=-1 max=0", 0), DLC_OK);
    ck_assert_int_eq(fusing("clip", "min=0.5 max=6", 0), DLC_ERR_UNSUPPORTED);
    ck_assert_int_eq(fusing("clip", "min=-6 max=-0.5", 0), DLC_ERR_UNSUPPORTED);
    ck_assert_int_eq(fusing("sigmoid", "", 0), DLC_ERR_UNSUPPORTED);
}
