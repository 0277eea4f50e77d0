/* Convolutions by our own Winograd transform: against plain references, test nets
 * beside training nets, and any number of threads; and when it is chosen. */
#include "checker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

/* Images that tiles don't divide, padding on no, on both and on most sides, groups,
 * channels that blocks of vectors don't divide, and more than one block of tiles. */
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

static int chooses(const rig_spec *spec) {
    rig r;
    char text[128] = "";
    if (rig_open(&r, spec) == DLC_OK)
        r.ops->describe(r.layer, text, sizeof text);
    rig_close(&r);
    return strstr(text, "own:") && strstr(text, "winograd");
}

static rig_spec spec_of(int i) {
    return (rig_spec){.type = "convolution",
                      .settings = convolutions[i].settings,
                      .in = {convolutions[i].in}};
}

/* Where vectors are too short for it nothing is chosen, and there is nothing to test.
 */
static int is_here(void) {
    rig_spec first = spec_of(0);
    return chooses(&first);
}

/* Beside the largest number. */
static void check_near(const float *a, const float *b, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs((double)b[i]) > most ? fabs((double)b[i]) : most;
    ck_assert_double_le(far_apart(a, b, count), 2e-5 * most);
}

/* The same as the sums as they stand. */
static void check_direct(rig_spec spec) {
    rig own, direct;
    char text[256];
    ck_assert(chooses(&spec) || !is_here());
    run_rig(&own, &spec);
    (void)snprintf(text, sizeof text, "%s algorithm=direct", spec.settings);
    spec.settings = text;
    run_rig(&direct, &spec);
    check_near(own.out_data, direct.out_data, rig_out_count(&own));
    if (spec.phase != DLC_PHASE_TEST) {
        check_near(own.in_diff[0], direct.in_diff[0], rig_in_count(&own, 0));
        for (int32_t p = 0; p < own.plan.params; p++)
            check_near(own.param_diff[p], direct.param_diff[p],
                       rig_param_count(&own, p));
    }
    rig_close(&own);
    rig_close(&direct);
}

START_TEST(convolution) {
    rig_spec spec = spec_of(_i);
    check_direct(spec);
    spec.layout = "last";
    check_direct(spec);
    spec.layout = "blocked";
    spec.absorb = "";
    check_direct(spec);
    spec.absorb = "negative_slope=0.25";
    check_direct(spec);
    spec.phase = DLC_PHASE_TEST;
    check_direct(spec);
}
END_TEST

/* Against the plain reference and finite differences, which take long: the least. */
START_TEST(reference) {
    rig_spec spec = {.type = "convolution",
                     .settings = _i ? "num_output=32 kernel_size=5 pad=2"
                                    : "num_output=64 kernel_size=3 pad=1 group=2",
                     .in = {SHAPE(1, _i ? 32 : 64, 8, 8)}};
    ck_assert(chooses(&spec) || !is_here());
    check_layer(&spec, 5e-5);
}
END_TEST

START_TEST(any_number_of_threads) {
    static const int32_t threads[] = {1, 2, 3, 7};
    rig r[COUNT(threads)];
    rig_spec spec = spec_of(_i);
    if (!is_here())
        return;
    for (int k = 0; k < COUNT(threads); k++) {
        spec.threads = threads[k];
        ck_assert_int_eq(rig_open(&r[k], &spec), DLC_OK);
        fill_rig(&r[k]);
    }
    /* Prepared for one number and run with another, they keep to their memory. */
    for (int k = 0; k < COUNT(threads); k++) {
        ck_assert_int_eq(rig_forward(&r[k]), DLC_OK);
        ck_assert_int_eq(rig_backward(&r[k]), DLC_OK);
        check_same_results(&r[0], &r[k]);
    }
    for (int k = 0; k < COUNT(threads); k++)
        rig_close(&r[k]);
}
END_TEST

/* By the window, the channels and the size of the image, and not against a wish. */
static int chosen(const char *settings, dlc_shape in) {
    rig_spec spec = {.type = "convolution", .settings = settings, .in = {in}};
    return chooses(&spec);
}

START_TEST(choice) {
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
END_TEST

static void check_settings(const char *train_settings, const char *test_settings,
                           int64_t test_batch) {
    rig_spec train = {.type = "convolution",
                      .settings = train_settings,
                      .in = {SHAPE(2, 64, 12, 12)}};
    rig_spec test = train;
    test.settings = test_settings;
    test.in[0].dims[0] = test_batch;
    check_twin(&train, &test, 1e-3);
}

START_TEST(twins) {
    static const char own[] = "num_output=64 kernel_size=3 pad=1 group=2";
    static const char library[] =
        "num_output=64 kernel_size=3 pad=1 group=2 algorithm=direct";
    check_settings(own, own, 2);
    check_settings(own, own, 5);
    check_settings(own, library, 3);
    check_settings(library, own, 3);
}
END_TEST

int main(void) {
    if (!machine_layers_are("onednn"))
        return skip_suite("only oneDNN's layers have a transform of their own");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, convolution, 0, COUNT(convolutions));
    tcase_add_loop_test(tests, reference, 0, 2);
    tcase_add_loop_test(tests, any_number_of_threads, 0, COUNT(convolutions));
    tcase_add_test(tests, choice);
    tcase_add_test(tests, twins);
    return run_suite("layers-winograd", tests);
}
