/* Convolutions by our own Winograd transform: compared with plain references, in test
 * nets that share a train net's weights, with any number of threads; and when it is
 * chosen. */
#include "checker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"
#include "target.h"

/* Images that are no multiple of tiles, padding on no, both and most sides, groups,
 * channels that are no multiple of vector blocks, and more than one block of tiles. */
static const struct {
    const char *settings;
    dlc_shape in;
} convolutions[] = {
    {"num_output=64 kernel_size=3 pad=1 group=2", {4, {1, 64, 12, 12}}},
    {"num_output=96 kernel_size=3 pad=1 group=2", {4, {2, 64, 12, 11}}},
    {"num_output=96 kernel_size=3 bias=no group=2", {4, {3, 96, 14, 10}}},
    {"num_output=160 kernel_size=3 pad_h=2 pad_w=1 group=2", {4, {1, 64, 10, 8}}},
    {"num_output=32 kernel_size=5 pad=2", {4, {3, 32, 13, 9}}},
    {"num_output=64 kernel_size=5 pad=2 group=2", {4, {1, 96, 8, 9}}},
    {"num_output=48 kernel_size=5 pad=4 bias=no", {4, {2, 32, 6, 6}}},
    {"num_output=32 kernel_size=5", {4, {2, 80, 12, 14}}},
    {"num_output=144 kernel_size=3 pad=1 group=3", {4, {9, 96, 12, 12}}},
};

static int chooses(const layer_spec *spec) {
    return describes(spec, "own:") && describes(spec, "winograd");
}

static layer_spec spec_of(int i) {
    return (layer_spec){.type = "convolution",
                        .settings = convolutions[i].settings,
                        .in = {convolutions[i].in}};
}

/* If vectors are too short for it, it is never chosen, and there is nothing to test. */
static int is_here(void) {
    layer_spec first = spec_of(0);
    return chooses(&first);
}

/* Relative to the largest number. */
static void check_near(const float *a, const float *b, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs((double)b[i]) > most ? fabs((double)b[i]) : most;
    ck_assert_double_le(largest_difference(a, b, count), 2e-5 * most);
}

/* Compared with the direct convolution. */
static void check_direct(layer_spec spec) {
    fixture own, direct;
    char text[256];
    ck_assert(chooses(&spec) || !is_here());
    run_fixture(&own, &spec);
    (void)snprintf(text, sizeof text, "%s algorithm=direct", spec.settings);
    spec.settings = text;
    run_fixture(&direct, &spec);
    check_near(own.out_data, direct.out_data, fixture_out_count(&own));
    if (spec.phase != DLC_PHASE_TEST) {
        check_near(own.in_diff[0], direct.in_diff[0], fixture_in_count(&own, 0));
        for (int32_t p = 0; p < own.memory.params; p++)
            check_near(own.param_diff[p], direct.param_diff[p],
                       fixture_param_count(&own, p));
    }
    fixture_close(&own);
    fixture_close(&direct);
}

static int begin(int argc, char **argv) {
    if (!target_layers_are("onednn"))
        return tests_skip("only oneDNN's layers have a transform of their own");
    return layers_begin(argc, argv);
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

TEST_EACH(convolution, COUNT(convolutions)) {
    layer_spec spec = spec_of(_i);
    check_direct(spec);
    spec.layout = "last";
    check_direct(spec);
    spec.layout = "blocked";
    spec.fused = "";
    check_direct(spec);
    spec.fused = "negative_slope=0.25";
    check_direct(spec);
    spec.phase = DLC_PHASE_TEST;
    check_direct(spec);
}

/* Compared with the plain reference and finite differences, which take long: as little
 * as possible. */
TEST_EACH(reference, 2) {
    layer_spec spec = {.type = "convolution",
                       .settings = _i ? "num_output=32 kernel_size=5 pad=2"
                                      : "num_output=64 kernel_size=3 pad=1 group=2",
                       .in = {SHAPE(1, _i ? 32 : 64, 8, 8)}};
    ck_assert(chooses(&spec) || !is_here());
    check_layer(&spec, 5e-5);
}

TEST_EACH(any_number_of_threads, COUNT(convolutions)) {
    static const int32_t threads[] = {1, 2, 3, 7};
    fixture r[COUNT(threads)];
    layer_spec spec = spec_of(_i);
    if (!is_here())
        return;
    for (int k = 0; k < COUNT(threads); k++) {
        spec.threads = threads[k];
        ck_assert_int_eq(fixture_open(&r[k], &spec), DLC_OK);
        fill_fixture(&r[k]);
    }
    /* Prepared for one number of threads and run with another, they stay within their
     * memory. */
    for (int k = 0; k < COUNT(threads); k++) {
        ck_assert_int_eq(fixture_forward(&r[k]), DLC_OK);
        ck_assert_int_eq(fixture_backward(&r[k]), DLC_OK);
        check_same_results(&r[0], &r[k]);
    }
    for (int k = 0; k < COUNT(threads); k++)
        fixture_close(&r[k]);
}

/* Depends on window, channels and image size, and on the option `algorithm`. */
static int chosen(const char *settings, dlc_shape in) {
    layer_spec spec = {.type = "convolution", .settings = settings, .in = {in}};
    return chooses(&spec);
}

TEST(choice) {
    if (!is_here())
        return;
    ck_assert(
        chosen("num_output=256 kernel_size=5 pad=2 group=2", SHAPE(2, 96, 27, 27)));
    ck_assert(
        chosen("num_output=384 kernel_size=3 pad=1 group=2", SHAPE(2, 384, 13, 13)));
    ck_assert(!chosen("num_output=384 kernel_size=3 pad=1 group=2 algorithm=direct",
                      SHAPE(2, 384, 13, 13)));
    ck_assert(!chosen("num_output=384 kernel_size=3 pad=1 group=2 layout=library",
                      SHAPE(2, 384, 13, 13)));
    ck_assert(
        !chosen("num_output=128 kernel_size=3 pad=1 group=32", SHAPE(2, 128, 14, 14)));
    ck_assert(
        !chosen("num_output=64 kernel_size=3 pad=1 group=64", SHAPE(2, 64, 14, 14)));
    ck_assert(!chosen("num_output=96 kernel_size=5 pad=2", SHAPE(2, 3, 28, 28)));
    ck_assert(!chosen("num_output=40 kernel_size=5 pad=2", SHAPE(2, 36, 14, 14)));
    ck_assert(
        !chosen("num_output=64 kernel_size=5 pad=2 stride=2", SHAPE(2, 64, 14, 14)));
    ck_assert(!chosen("num_output=64 kernel_size=3 pad=2 dilation=2 group=2",
                      SHAPE(2, 64, 14, 14)));
    ck_assert(
        !chosen("num_output=64 kernel_h=5 kernel_w=3 group=2", SHAPE(2, 64, 14, 14)));
    ck_assert(!chosen("num_output=64 kernel_size=3 pad=1 group=2", SHAPE(2, 64, 5, 5)));
}

static void check_settings(const char *train_settings, const char *test_settings,
                           int64_t test_batch) {
    layer_spec train = {.type = "convolution",
                        .settings = train_settings,
                        .in = {SHAPE(2, 64, 12, 12)}};
    layer_spec test = train;
    test.settings = test_settings;
    test.in[0].dims[0] = test_batch;
    check_test_net(&train, &test, 1e-3);
}

TEST(test_nets) {
    static const char own[] = "num_output=64 kernel_size=3 pad=1 group=2";
    static const char library[] =
        "num_output=64 kernel_size=3 pad=1 group=2 algorithm=direct";
    check_settings(own, own, 2);
    check_settings(own, own, 5);
    check_settings(own, library, 3);
    check_settings(library, own, 3);
}
