/* Convolutions and inner products in bfloat16 by AMX's tiles, or by their emulation
 * (DLCORE_AMX): compared with plain references and with float32, in test nets that
 * share a train net's weights, with any number of threads; and when they are chosen. */
#include "checker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "support/test.h"
#include "target.h"

typedef struct layer_case {
    const char *type, *settings;
    dlc_shape in;
} layer_case;

/* Small ones, whose gradients are compared with finite differences. */
static const layer_case small[] = {
    {"convolution", "num_output=5 kernel_size=1", {4, {2, 3, 4, 5}}},
    {"convolution", "num_output=20 kernel_size=5", {4, {2, 1, 9, 9}}},
    {"convolution", "num_output=33 kernel_size=3 pad=1", {4, {2, 17, 5, 6}}},
    {"convolution", "num_output=17 kernel_size=2 stride=3", {4, {1, 33, 7, 8}}},
    {"convolution", "num_output=16 kernel_size=3 group=1 stride=2", {4, {2, 16, 6, 7}}},
    {"convolution",
     "num_output=34 kernel_size=3 pad=1 group=2 stride=2",
     {4, {1, 32, 5, 6}}},
    {"convolution", "num_output=7 kernel_h=3 kernel_w=1 pad_h=1", {4, {3, 20, 5, 4}}},
    {"convolution", "num_output=4 kernel_size=7 pad=6 bias=no", {4, {2, 3, 4, 5}}},
    {"inner_product", "num_output=1", {2, {1, 1}}},
    {"inner_product", "num_output=10", {2, {3, 17}}},
    {"inner_product", "num_output=17 bias=no", {4, {3, 20, 3, 2}}},
    {"inner_product", "num_output=33", {3, {40, 7, 5}}},
};

/* The emulation would take a minute for the last ones of the table. */
enum { HEAVY = 8 };

/* Windows, strides and paddings of all kinds; channels and pixels that are no multiple
 * of tiles; enough of them for parts of channels, several sets of panels, bands of
 * rows, slices of the gradient, and results that go past the caches. */
static const layer_case large[] = {
    {"convolution", "num_output=96 kernel_size=11 stride=4", {4, {2, 3, 47, 43}}},
    {"convolution", "num_output=64 kernel_size=7 stride=2 pad=3", {4, {2, 3, 30, 33}}},
    {"convolution", "num_output=20 kernel_size=5 pad=2", {4, {5, 1, 28, 28}}},
    {"convolution", "num_output=33 kernel_size=3 pad=1", {4, {3, 31, 9, 11}}},
    {"convolution", "num_output=64 kernel_size=3 pad=1 stride=2", {4, {3, 48, 15, 14}}},
    {"convolution", "num_output=40 kernel_size=3 pad=1 stride=3", {4, {2, 35, 13, 16}}},
    {"convolution", "num_output=40 kernel_size=1 stride=2", {4, {2, 70, 9, 8}}},
    {"convolution",
     "num_output=40 kernel_size=2 stride=4 bias=no",
     {4, {2, 36, 13, 17}}},
    {"convolution", "num_output=40 kernel_size=1 pad=0 stride=3", {4, {2, 33, 8, 8}}},
    {"convolution", "num_output=100 kernel_size=1", {4, {3, 544, 7, 7}}},
    {"convolution", "num_output=70 kernel_size=1", {4, {2, 1100, 6, 6}}},
    {"convolution", "num_output=150 kernel_size=3 pad=1", {4, {1, 576, 5, 4}}},
    {"convolution", "num_output=530 kernel_size=3 pad=1", {4, {1, 64, 8, 8}}},
    {"convolution", "num_output=640 kernel_size=3 stride=2", {4, {1, 40, 9, 7}}},
    {"convolution",
     "num_output=48 kernel_size=3 pad=1 group=3 bias=no",
     {4, {4, 96, 8, 7}}},
    {"convolution",
     "num_output=34 kernel_size=5 pad=2 group=2 stride=2",
     {4, {2, 66, 11, 9}}},
    {"convolution", "num_output=64 kernel_size=1 group=2", {4, {3, 32, 6, 5}}},
    {"convolution", "num_output=40 kernel_h=1 kernel_w=7 pad_w=3", {4, {2, 36, 9, 12}}},
    {"convolution",
     "num_output=40 kernel_h=7 kernel_w=1 pad_h=3 stride=2",
     {4, {2, 36, 9, 12}}},
    {"convolution",
     "num_output=24 kernel_h=2 kernel_w=5 pad_h=1 pad_w=4",
     {4, {2, 20, 3, 6}}},
    {"convolution", "num_output=40 kernel_size=6", {4, {3, 32, 6, 6}}},
    {"convolution", "num_output=40 kernel_size=1", {4, {40, 64, 1, 1}}},
    {"inner_product", "num_output=1000", {2, {2, 2100}}},
    {"inner_product", "num_output=37", {4, {35, 33, 3, 5}}},
    {"inner_product", "num_output=10", {2, {1, 512}}},
    {"convolution", "num_output=50 kernel_size=5", {4, {40, 20, 12, 12}}},
    {"convolution", "num_output=300 kernel_size=1", {4, {2, 2048, 5, 7}}},
    {"convolution", "num_output=768 kernel_size=3 pad=1 group=2", {4, {1, 768, 5, 5}}},
    {"convolution", "num_output=24 kernel_size=3 pad=1", {4, {1, 40, 90, 88}}},
    {"convolution", "num_output=64 kernel_size=1", {4, {2, 16, 200, 170}}},
    {"inner_product", "num_output=500", {4, {64, 50, 4, 4}}},
    {"inner_product", "num_output=70", {2, {300, 1111}}},
    {"inner_product", "num_output=1024 bias=no", {2, {5, 2080}}},
};

static layer_spec spec_of(const layer_case *c) {
    return (layer_spec){
        .type = c->type, .settings = c->settings, .floats = DLC_BF16, .in = {c->in}};
}

static int is_emulated(void) {
    const char *wanted = getenv("DLCORE_AMX");
    return wanted && strcmp(wanted, "emulated") == 0;
}

/* Does oneDNN compute in bfloat16 itself? The emulation needs no such CPU. */
static int library_has_bf16(void) {
    const int emulated = is_emulated();
    ck_assert_int_eq(setenv("DLCORE_AMX", "off", 1), 0);
    int has = fixture_has(DLC_BF16);
    ck_assert_int_eq(
        emulated ? setenv("DLCORE_AMX", "emulated", 1) : unsetenv("DLCORE_AMX"), 0);
    return has;
}

static int chooses(const layer_spec *spec) {
    return describes(spec, is_emulated() ? "own:amx_emulated" : "own:amx_tiles");
}

/* Not registered: is_here() runs it. */
START_TEST(first) {
    layer_spec spec = spec_of(&small[0]);
    ck_assert(chooses(&spec));
}
END_TEST

/* A run of its own, since fixtures need one. */
static int is_here(void) {
    Suite *suite = suite_create("amx");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, first);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    (void)fixture_plugin();
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return !failed;
}

static int begin(int argc, char **argv) {
    if (!target_layers_are("onednn"))
        return tests_skip("only oneDNN's layers multiply by tiles");
    if (!is_emulated() && !is_here())
        return tests_skip("this CPU has no AMX");
    return layers_begin(argc, argv);
}

/* The emulation is too slow for all of `large`. */
static int large_count(void) {
    return COUNT(large) - (is_emulated() ? HEAVY : 0);
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

/* ---- Compared with plain references --------------------------------------------- */

static const double tolerance = 1.0 / 64; /* weights are rounded, too */

TEST_EACH(reference, COUNT(small)) {
    layer_spec spec = spec_of(&small[_i]);
    ck_assert(chooses(&spec));
    if (library_has_bf16()) {
        check_all_ways(&spec, tolerance);
    } else {
        check_layer(&spec, tolerance);
        spec.phase = DLC_PHASE_TEST;
        check_layer(&spec, tolerance);
        spec.phase = DLC_PHASE_TRAIN;
    }
    spec.frozen = 1;
    check_layer(&spec, tolerance);
    spec.frozen = 0;
    spec.plain_params = 1;
    check_layer(&spec, tolerance);
    spec.layout = spec.in[0].rank == 4 ? "last" : NULL;
    check_layer(&spec, tolerance);
}

/* ---- Compared with float32, from the same rounded numbers ------------------------ */

static void make_bf16(float *data, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t number;
        memcpy(&number, &data[i], sizeof number);
        number &= 0xffff0000u;
        memcpy(&data[i], &number, sizeof number);
    }
}

/* Weights are rounded by the layer; biases are not. */
static void fill_rounded(fixture *r) {
    fill_fixture(r);
    make_bf16(r->in_data[0], fixture_in_count(r, 0));
    make_bf16(r->param_data[0], fixture_param_count(r, 0));
    make_bf16(r->out_diff, fixture_out_count(r));
    fill_values(r->in_diff[0], fixture_in_count(r, 0), 77, 3);
    make_bf16(r->in_diff[0], fixture_in_count(r, 0));
}

static double size_of(const float *data, int64_t count) {
    double size = 1;
    for (int64_t i = 0; i < count; i++)
        size = fmax(size, fabs((double)data[i]));
    return size;
}

/* Each number has the error of one rounding to `bits` bits, and that of a sum. */
static void check_close(const layer_spec *spec, const char *what, const float *got,
                        const float *want, int64_t count, int bits) {
    const double sum = 2e-5 * size_of(want, count), rounding = 1.001 * ldexp(1, -bits);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <=
              sum + rounding * fabs((double)want[i])))
            ck_abort_msg("%s %s%s%s: %s %lld is %.9g, in float32 %.9g", spec->type,
                         spec->settings, spec->fused ? ", fused " : "",
                         spec->fused ? spec->fused : "", what, (long long)i,
                         (double)got[i], (double)want[i]);
}

enum { BF16_BITS = 8, FLOAT_BITS = 24 };

/* Rounding may take an output across the kink of an activation, where no gradient is
 * compared. `sums`: without the activation. */
static void leave_kinks_out(const fixture *sums, fixture *r) {
    for (int64_t i = 0; i < fixture_out_count(r); i++)
        if (fabsf(sums->out_data[i]) < 0.01f)
            r->out_diff[i] = 0;
}

/* The layer in float32, computed by other code. */
static void run_float32(fixture *r, layer_spec spec, const fixture *sums) {
    char text[256];
    (void)snprintf(text, sizeof text, "%s%s", spec.settings,
                   strcmp(spec.type, "convolution") == 0 ? " algorithm=direct" : "");
    spec.settings = text;
    spec.floats = DLC_F32;
    spec.layout = NULL;
    spec.accumulate = 0;
    ck_assert_msg(fixture_open(r, &spec) == DLC_OK, "%s", dlc_detail());
    fill_rounded(r);
    ck_assert_int_eq(fixture_forward(r), DLC_OK);
    if (!sums)
        return;
    leave_kinks_out(sums, r);
    if (r->spec.phase == DLC_PHASE_TRAIN)
        ck_assert_int_eq(fixture_backward(r), DLC_OK);
}

static void check_gradients(const fixture *own, const fixture *exact,
                            const float *before) {
    const layer_spec *spec = &own->spec;
    const int64_t count = fixture_in_count(own, 0);
    if (spec->accumulate)
        ck_assert_uint_eq(own->memory.accumulates_gradient, 1);
    for (int64_t i = 0; i < count && spec->accumulate; i++)
        exact->in_diff[0][i] += before[i];
    if (!(spec->no_gradient & 1))
        check_close(spec, "gradient of input", own->in_diff[0], exact->in_diff[0],
                    count, BF16_BITS);
    for (int32_t p = 0; p < own->memory.params && !spec->frozen; p++)
        check_close(spec, p ? "gradient of bias" : "gradient of weight",
                    own->param_diff[p], exact->param_diff[p],
                    fixture_param_count(own, p), FLOAT_BITS);
}

static void check_float32(layer_spec spec) {
    fixture own, exact, sums;
    layer_spec bare = spec;
    bare.fused = NULL;
    run_float32(&sums, bare, NULL);
    run_float32(&exact, spec, &sums);
    ck_assert(chooses(&spec));
    ck_assert_msg(fixture_open(&own, &spec) == DLC_OK, "%s", dlc_detail());
    fill_rounded(&own);
    ck_assert_int_eq(fixture_forward(&own), DLC_OK);
    check_close(&spec, "output", own.out_data, exact.out_data, fixture_out_count(&own),
                BF16_BITS);
    if (own.spec.phase == DLC_PHASE_TRAIN) {
        const size_t bytes = (size_t)fixture_in_count(&own, 0) * sizeof(float);
        float *before = dlc_alloc(bytes, 1);
        memcpy(before, own.in_diff[0], bytes);
        leave_kinks_out(&sums, &own);
        ck_assert_int_eq(fixture_backward(&own), DLC_OK);
        check_gradients(&own, &exact, before);
        dlc_free(before);
    }
    fixture_close(&sums);
    fixture_close(&exact);
    fixture_close(&own);
}

TEST_EACH(float32, large_count()) {
    layer_spec spec = spec_of(&large[_i]);
    spec.layout = spec.in[0].rank == 4 ? "last" : NULL;
    check_float32(spec);
    spec.accumulate = 1;
    check_float32(spec);
}

TEST_EACH(float32_of_small, COUNT(small)) {
    layer_spec spec = spec_of(&small[_i]);
    check_float32(spec);
    spec.accumulate = 1;
    check_float32(spec);
    spec.accumulate = 0;
    spec.no_gradient = 1;
    check_float32(spec);
}

TEST_EACH(fused, 6) {
    static const layer_case *const cases[] = {&small[2], &small[3],  &small[9],
                                              &large[4], &large[12], &large[23]};
    static const char *const activations[] = {"", "negative_slope=0.25"};
    for (int a = 0; a < COUNT(activations); a++) {
        layer_spec spec = spec_of(cases[_i]);
        spec.fused = activations[a];
        check_float32(spec);
        spec.frozen = 1;
        check_float32(spec);
        spec.phase = DLC_PHASE_TEST;
        check_float32(spec);
    }
}

/* ---- The same bits -------------------------------------------------------------- */

TEST_EACH(any_number_of_threads, large_count()) {
    check_any_number_of_threads(spec_of(&large[_i]));
}

/* Ranks that differ exchange plain parameters; the results are the same bits. */
TEST_EACH(plain_params, COUNT(small)) {
    fixture own, plain;
    layer_spec spec = spec_of(&small[_i]);
    spec.layout = spec.in[0].rank == 4 ? "last" : NULL;
    run_fixture(&own, &spec);
    spec.plain_params = 1;
    run_fixture(&plain, &spec);
    check_same_results(&own, &plain);
    const int64_t count = fixture_param_count(&plain, 0);
    ck_assert_int_eq(plain.param_count[0], count);
    float *as_is = dlc_alloc((size_t)count, sizeof(float));
    fixture_param_gradient(&plain, 0, as_is);
    check_same_bits(as_is, plain.param_diff[0], count);
    dlc_free(as_is);
    fixture_close(&plain);
    fixture_close(&own);
}

/* ---- Test nets ------------------------------------------------------------------ */

TEST(test_nets) {
    static const char *const settings[] = {
        "num_output=40 kernel_size=3 pad=1",
        "num_output=40 kernel_size=3 pad=1 layout=library",
    };
    const int library = library_has_bf16();
    for (int pair = 0; pair < 4; pair++)
        for (int plain = 0; plain < 2; plain++) {
            layer_spec train = {.type = "convolution",
                                .settings = settings[pair % 2],
                                .in = {SHAPE(2, 33, 6, 5)},
                                .floats = DLC_BF16,
                                .plain_params = plain};
            layer_spec test = train;
            test.settings = settings[pair / 2];
            test.in[0].dims[0] = 3;
            test.plain_params = 0;
            if (pair == 0 || library)
                check_test_net(&train, &test, 0.5);
        }
}

/* A train net of images channels last has weights in that order, of a matrix plain
 * ones; a test net reads either. */
TEST(test_nets_of_products) {
    for (int i = 0; i < 8; i++) {
        layer_spec train = {.type = "inner_product",
                            .settings = "num_output=37",
                            .in = {SHAPE(6, 20, 3, 4)},
                            .floats = DLC_BF16,
                            .layout = i & 1 ? "last" : NULL,
                            .plain_params = i >> 2 & 1};
        layer_spec test = train;
        test.layout = i & 2 ? "last" : NULL;
        test.in[0].dims[0] = 3;
        test.plain_params = 0;
        check_test_net(&train, &test, 0.5);
    }
}

/* ---- NaN ------------------------------------------------------------------------ */

static int count_nan(const float *data, int64_t count) {
    int found = 0;
    for (int64_t i = 0; i < count; i++)
        found += isnan(data[i]) != 0;
    return found;
}

TEST(nan_spreads) {
    fixture r;
    const layer_spec spec = {.type = "convolution",
                             .settings = "num_output=20 kernel_size=3 pad=1",
                             .fused = "",
                             .floats = DLC_BF16,
                             .in = {SHAPE(2, 32, 5, 9)}};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    fill_fixture(&r);
    for (int64_t i = 0; i < fixture_param_count(&r, 1); i++)
        r.param_data[1][i] = 1000; /* the relu lets every gradient through */
    r.in_data[0][4 * 45 + 2 * 9 + 4] = NAN;
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(count_nan(r.out_data, fixture_out_count(&r)), 20 * 9);
    ck_assert(isnan(r.out_data[4 * 45 + 1 * 9 + 3]));
    r.out_diff[3 * 45 + 9 + 1] = NAN;
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    ck_assert_int_eq(count_nan(r.in_diff[0], 45 * 32), 32 * 9);
    ck_assert(isnan(r.param_diff[1][3]) && !isnan(r.param_diff[1][4]));
    fixture_close(&r);
}

/* ---- When they are chosen ------------------------------------------------------- */

static int chosen(const char *settings, dlc_shape in) {
    layer_spec spec = {
        .type = "convolution", .settings = settings, .in = {in}, .floats = DLC_BF16};
    return chooses(&spec);
}

TEST(choice) {
    ck_assert(chosen("num_output=64 kernel_size=3", SHAPE(2, 64, 9, 9)));
    ck_assert(chosen("num_output=64 kernel_size=3", SHAPE(2, 3, 9, 9)));
    ck_assert(chosen("num_output=32 kernel_size=3 group=2", SHAPE(2, 32, 9, 9)));
    ck_assert(chosen("num_output=8 kernel_h=5 kernel_w=1", SHAPE(2, 3, 9, 9)));
    layer_spec spec = spec_of(&large[0]);
    spec.layout = library_has_bf16() ? "blocked" : NULL;
    ck_assert(chooses(&spec));
    spec.floats = DLC_F32;
    ck_assert(!chooses(&spec));
    spec = (layer_spec){.type = "inner_product",
                        .settings = "num_output=37",
                        .floats = DLC_BF16,
                        .in = {SHAPE(5, 33, 3, 5)}};
    ck_assert(describes(&spec, "plain"));
    spec.layout = "last";
    ck_assert(describes(&spec, "channels_last"));
    spec.plain_params = 1;
    ck_assert(chooses(&spec) && describes(&spec, "plain"));
}

TEST_EACH(other_choice, 7) {
    static const struct {
        const char *settings;
        dlc_shape in;
    } others[] = {
        {"num_output=64 kernel_size=3 layout=library", {4, {2, 64, 9, 9}}},
        {"num_output=64 kernel_size=3 layout=channels_last", {4, {2, 64, 9, 9}}},
        {"num_output=64 kernel_size=3 dilation=2", {4, {2, 64, 9, 9}}},
        {"num_output=64 kernel_size=3 stride_h=1 stride_w=2", {4, {2, 64, 9, 9}}},
        {"num_output=32 kernel_size=3 group=4", {4, {2, 64, 9, 9}}},
        {"num_output=64 kernel_size=3 group=4", {4, {2, 32, 9, 9}}},
        {"num_output=64 kernel_size=3 group=64", {4, {2, 64, 9, 9}}},
    };
    ck_assert(!library_has_bf16() || !chosen(others[_i].settings, others[_i].in));
}

TEST(forbidden) {
    layer_spec spec = spec_of(&small[2]);
    if (library_has_bf16()) {
        ck_assert_int_eq(setenv("DLCORE_AMX", "off", 1), 0);
        ck_assert(!describes(&spec, "own:amx"));
    }
    ck_assert_int_eq(setenv("DLCORE_AMX", "emulated", 1), 0);
    ck_assert(describes(&spec, "own:amx_emulated"));
}
