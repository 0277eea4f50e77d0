/* Batch normalisation in every layout, with all that it takes over, in both types and
 * by any number of threads. */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "machine.h"

static const dlc_shape shapes[] = {
    {4, {16, 3, 2, 2}},  {4, {16, 5, 3, 3}},  {4, {16, 8, 4, 5}},  {4, {16, 16, 5, 5}},
    {4, {16, 20, 1, 7}}, {4, {16, 24, 2, 4}}, {4, {16, 70, 2, 1}}, {4, {16, 300, 1, 1}},
};
static const char *const layouts[] = {NULL, "last", "blocked", "batch_blocked"};

static const struct {
    const char *type, *settings;
} activations[] = {{NULL, NULL},
                   {NULL, ""},
                   {NULL, "negative_slope=0.25"},
                   {"clip", "min=0 max=0.75"},
                   {"clip", "min=-0.5 max=1"}};

static rig_spec spec_of(int shape, int layout, int activation) {
    rig_spec spec = {.type = "batch_norm",
                     .settings = "",
                     .in = {shapes[shape]},
                     .layout = layouts[layout],
                     .absorb = activations[activation].settings,
                     .absorb_type = activations[activation].type};
    if (!spec.layout || strcmp(spec.layout, "batch_blocked") != 0)
        spec.in[0].dims[0] = 5;
    return spec;
}

/* Each shape and layout with some of the activations, one after another in turn. */
static int skips(int shape, int layout, int activation, int share) {
    return (shape + layout + activation) % share != 0;
}

static void check_phases(rig_spec *spec, double tolerance) {
    spec->phase = DLC_PHASE_TRAIN;
    check_layer(spec, tolerance);
    spec->phase = DLC_PHASE_TEST;
    check_layer(spec, tolerance);
}

START_TEST(every_layout) {
    for (int layout = 0; layout < COUNT(layouts); layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            rig_spec spec = spec_of(_i, layout, activation);
            spec.in_place = activation % 2;
            if (skips(_i, layout, activation, 2))
                continue;
            check_phases(&spec, 2e-4);
        }
}
END_TEST

/* The sum with a further input, as residual nets have it. */
START_TEST(joined) {
    for (int layout = 0; layout < COUNT(layouts); layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            rig_spec spec = spec_of(_i, layout, activation);
            spec.join = 1;
            spec.in_place = activation % 3;
            if (skips(_i, layout, activation, 3))
                continue;
            check_phases(&spec, 2e-4);
            spec.phase = DLC_PHASE_TRAIN;
            spec.settings = "use_global_stats=yes scale_bias=no";
            check_layer(&spec, 2e-4);
        }
}
END_TEST

/* Half a unit in the last of eight bits, where the largest numbers are, and as much
 * where a sum's gradient is rounded on its way. */
START_TEST(bfloat16) {
    if (!rig_has(DLC_BF16))
        return;
    for (int layout = 0; layout < 3; layout++)
        for (int activation = 0; activation < COUNT(activations); activation++) {
            rig_spec spec = spec_of(_i, layout, activation);
            spec.floats = DLC_BF16;
            if (skips(_i, layout, activation, 3))
                continue;
            check_phases(&spec, 1.0 / 256);
            spec.join = 1;
            /* What was rounded to a bound passes for what lay beyond it. */
            if (activations[activation].type)
                spec.phase = DLC_PHASE_TEST, check_layer(&spec, 1.0 / 256);
            else
                check_phases(&spec, 1.0 / 128);
        }
}
END_TEST

/* Large enough for threads to share channels, or for each to have its own. */
START_TEST(any_number_of_threads) {
    static const dlc_shape large[] = {
        {4, {16, 32, 24, 24}}, {4, {16, 640, 3, 3}}, {4, {16, 3, 30, 30}}};
    static const int32_t threads[] = {1, 2, 3, 7};
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        rig r[COUNT(threads)];
        rig_spec spec = spec_of(0, layout, 1);
        spec.in[0] = large[_i];
        spec.join = layout % 2;
        for (int k = 0; k < COUNT(threads); k++) {
            spec.threads = threads[k];
            run_rig(&r[k], &spec);
            check_same_results(&r[0], &r[k]);
        }
        for (int k = 0; k < COUNT(threads); k++)
            rig_close(&r[k]);
    }
}
END_TEST

/* A tensor that is too large for the caches is written past them. */
START_TEST(past_the_caches) {
    for (int layout = 1; layout < 3; layout++) {
        rig_spec spec = spec_of(0, layout, 1);
        spec.in[0] = SHAPE(16, 48, 54, 54);
        rig large, small;
        run_rig(&large, &spec);
        int64_t count = rig_out_count(&large), ones = 0;
        for (int64_t i = 0; i < count; i++)
            if (!(large.out_data[i] >= 0))
                ck_abort_msg("output %lld is %g", (long long)i,
                             (double)large.out_data[i]);
            else
                ones += large.out_data[i] > 0;
        ck_assert_int_gt(ones, count / 4);
        spec.layout = NULL; /* not in whole vectors, so not past the caches */
        run_rig(&small, &spec);
        ck_assert_double_le(far_apart(large.out_data, small.out_data, count), 1e-5);
        ck_assert_double_le(far_apart(large.in_diff[0], small.in_diff[0], count), 1e-5);
        rig_close(&small);
        rig_close(&large);
    }
}
END_TEST

/* The variance of numbers far from zero, where a sum of squares keeps none of it. */
START_TEST(far_from_zero) {
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        rig r;
        rig_spec spec = spec_of(1, layout, 0);
        spec.settings = "momentum=0";
        ck_assert_int_eq(rig_open(&r, &spec), DLC_OK);
        fill_rig(&r);
        const int64_t *d = r.in[0].shape.dims, points = d[2] * d[3];
        for (int64_t i = 0; i < rig_in_count(&r, 0); i++) /* exact in float32 */
            r.in_data[0][i] = 4096.0f + (float)(i % points % 3 - 1) / 8;
        ck_assert_int_eq(rig_forward(&r), DLC_OK);
        double n = (double)(d[0] * points), want = 2.0 / 3 / 64 * n / (n - 1);
        for (int64_t c = 0; c < d[1]; c++) {
            ck_assert_float_eq(r.param_data[2][c], 4096.0f);
            ck_assert_double_eq_tol((double)r.param_data[3][c], want, 1e-6 * want);
        }
        rig_close(&r);
    }
}
END_TEST

/* What is made again is the same to the bit, and running averages stay. */
START_TEST(again) {
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        rig once, twice;
        rig_spec spec = spec_of(_i, layout, 2);
        ck_assert_int_eq(rig_open(&once, &spec), DLC_OK);
        ck_assert_int_eq(rig_open(&twice, &spec), DLC_OK);
        fill_rig(&once);
        fill_rig(&twice);
        ck_assert_int_eq(rig_forward(&once), DLC_OK);
        ck_assert_int_eq(rig_forward(&twice), DLC_OK);
        ck_assert_int_eq(rig_forward_again(&twice), DLC_OK);
        ck_assert_int_eq(rig_backward(&once), DLC_OK);
        ck_assert_int_eq(rig_backward(&twice), DLC_OK);
        check_same_results(&once, &twice);
        rig_close(&once);
        rig_close(&twice);
    }
}
END_TEST

/* The gradient is zero exactly where forward gave the bound, however close to it: both
 * must round alike. */
START_TEST(mask_agrees) {
    for (int layout = 0; layout < COUNT(layouts); layout++) {
        rig r;
        rig_spec spec = spec_of(4, layout, 1);
        ck_assert_int_eq(rig_open(&r, &spec), DLC_OK);
        fill_rig(&r);
        int64_t count = rig_in_count(&r, 0), channels = r.in[0].shape.dims[1];
        for (int64_t c = 0; c < channels; c++) { /* outputs around zero, tiny */
            r.param_data[0][c] = 1e-6f;
            r.param_data[1][c] = 0;
        }
        for (int64_t i = 0; i < count; i++) {
            r.in_data[0][i] = 1 + 1e-6f * (float)(i * 7919 % 5);
            r.out_diff[i] = 1;
        }
        r.unwanted = 1;
        ck_assert_int_eq(rig_forward(&r), DLC_OK);
        ck_assert_int_eq(rig_backward(&r), DLC_OK);
        int64_t size = count / channels;
        for (int64_t c = 0; c < channels; c++) { /* the bias' gradient counts them */
            int64_t points = r.in[0].shape.dims[2] * r.in[0].shape.dims[3], above = 0;
            for (int64_t i = 0; i < size; i++)
                above += r.out_data[(i / points * channels + c) * points + i % points] >
                         0;
            ck_assert_float_eq(r.param_diff[1][c], (float)above);
        }
        rig_close(&r);
    }
}
END_TEST

static dlc_status absorbing(const char *type, const char *settings, int join) {
    rig r;
    rig_spec spec = {.type = "batch_norm",
                     .settings = "",
                     .absorb = settings,
                     .absorb_type = type,
                     .join = join,
                     .in = {SHAPE(2, 2, 2, 2)}};
    dlc_status status = rig_open(&r, &spec);
    if (status == DLC_OK) {
        ck_assert_int_eq(r.ops->absorb(r.layer, rig_feature("relu"), NULL),
                         DLC_ERR_UNSUPPORTED);
        /* A sum that follows comes after the relu, not before it. */
        dlc_settings *sum = machine_settings(rig_feature("eltwise"), "");
        ck_assert_int_eq(r.ops->absorb(r.layer, rig_feature("eltwise"), sum),
                         DLC_ERR_UNSUPPORTED);
        dlc_settings_free(sum);
        char text[64] = "";
        r.ops->describe(r.layer, text, sizeof text);
        ck_assert_ptr_nonnull(strstr(text, type ? " +clip" : " +relu"));
        ck_assert_int_eq(strstr(text, " +sum") != NULL, join);
    }
    rig_close(&r);
    return status;
}

/* What would make something of padding's zeros is left to itself. */
START_TEST(absorb) {
    ck_assert_int_eq(absorbing(NULL, "", 0), DLC_OK);
    ck_assert_int_eq(absorbing(NULL, "negative_slope=2", 1), DLC_OK);
    ck_assert_int_eq(absorbing("clip", "", 1), DLC_OK);
    ck_assert_int_eq(absorbing("clip", "min=-1 max=0", 0), DLC_OK);
    ck_assert_int_eq(absorbing("clip", "min=0.5 max=6", 0), DLC_ERR_UNSUPPORTED);
    ck_assert_int_eq(absorbing("clip", "min=-6 max=-0.5", 0), DLC_ERR_UNSUPPORTED);
    ck_assert_int_eq(absorbing("sigmoid", "", 0), DLC_ERR_UNSUPPORTED);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, every_layout, 0, COUNT(shapes));
    tcase_add_loop_test(tests, joined, 0, COUNT(shapes));
    tcase_add_loop_test(tests, bfloat16, 0, COUNT(shapes));
    tcase_add_loop_test(tests, any_number_of_threads, 0, 3);
    tcase_add_test(tests, past_the_caches);
    tcase_add_test(tests, far_from_zero);
    tcase_add_loop_test(tests, again, 0, COUNT(shapes));
    tcase_add_test(tests, mask_agrees);
    tcase_add_test(tests, absorb);
    return run_suite("layers-norm", tests);
}
