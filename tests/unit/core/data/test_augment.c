/* Tests augmentation (core/data/augment.c) against a simple reference, and the
 * distribution of crops. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "config/config.h"
#include "data/augment.h"
#include "data/feed.h"
#include "plugin/host.h"
#include "support/scratch.h"

#define MOST (3 * 40 * 40)

/* The value at (c, y, x) of the padded sample. */
static float padded(const dlc_shape *in, const float *from, int pad, int64_t c,
                    int64_t y, int64_t x) {
    y -= pad;
    x -= pad;
    if (y < 0 || x < 0 || y >= in->dims[1] || x >= in->dims[2])
        return 0;
    return from[(c * in->dims[1] + y) * in->dims[2] + x];
}

static void reference(const dlc_augment *augment, const dlc_cut *cut,
                      const dlc_shape *in, const float *from, const dlc_shape *out,
                      float *to) {
    for (int64_t c = 0; c < out->dims[0]; c++) {
        float mean = 0;
        if (augment->means)
            mean = (float)augment->mean[augment->means == 1 ? 0 : c];
        for (int64_t y = 0; y < out->dims[1]; y++) {
            for (int64_t x = 0; x < out->dims[2]; x++) {
                int64_t column = cut->mirror ? out->dims[2] - 1 - x : x;
                float value = padded(in, from, augment->pad, c, y + cut->top,
                                     column + cut->left);
                *to++ = (value - mean) * augment->scale;
            }
        }
    }
}

static int pick(dlc_random *random, int least, int most) {
    return least + (int)dlc_random_below(random, (uint64_t)(most - least + 1));
}

/* The conversion of bytes that a device does. */
static void finish(const dlc_augment *augment, const dlc_shape *out,
                   const uint8_t *bytes, float *to) {
    int64_t plane = out->dims[1] * out->dims[2];
    for (int64_t i = 0; i < dlc_shape_count(out); i++)
        to[i] = ((float)bytes[i] - dlc_augment_mean(augment, i / plane)) *
                augment->scale;
}

/* Random sizes, crops and types; cropping bytes first and converting them later gives
 * the same result. */
START_TEST(same_as_reference) {
    static const double means[] = {1.5, -20, 128};
    dlc_random random = dlc_random_make(7, (uint64_t)_i);
    dlc_shape in = {3,
                    {pick(&random, 1, 3), pick(&random, 1, 35), pick(&random, 1, 35)}};
    dlc_shape out;
    dlc_augment augment = {.scale = 0.25f, .mean = means, .mirror = 1};
    augment.means = pick(&random, 0, 1) ? (size_t)in.dims[0]
                                        : (size_t)pick(&random, 0, 1);
    augment.pad = pick(&random, 0, 2);
    int64_t side = in.dims[1] < in.dims[2] ? in.dims[1] : in.dims[2];
    augment.crop = pick(&random, 0, (int)side + 2 * augment.pad);
    ck_assert_int_eq(dlc_augment_shape(&augment, &in, &out), DLC_OK);

    unsigned char bytes[MOST], kept[MOST];
    float floats[MOST], got[MOST], expected[MOST];
    int64_t count = dlc_shape_count(&in), out_count = dlc_shape_count(&out);
    for (int64_t i = 0; i < count; i++)
        floats[i] = bytes[i] = (unsigned char)dlc_random_u32(&random);
    for (uint64_t position = 0; position < 20; position++) {
        dlc_cut cut = dlc_augment_draw(&in, &out, &augment, 3, position);
        reference(&augment, &cut, &in, floats, &out, expected);
        dlc_augment_apply(&augment, &cut, DLC_U8, &in, bytes, &out, got);
        ck_assert_mem_eq(got, expected, (size_t)out_count * sizeof *got);
        memset(got, 0, sizeof got);
        dlc_augment_apply(&augment, &cut, DLC_F32, &in, floats, &out, got);
        ck_assert_mem_eq(got, expected, (size_t)out_count * sizeof *got);
        memset(kept, 77, sizeof kept);
        dlc_augment_cut(&augment, &cut, &in, bytes, &out, kept);
        finish(&augment, &out, kept, got);
        ck_assert_mem_eq(got, expected, (size_t)out_count * sizeof *got);
        ck_assert_uint_eq(kept[out_count], 77);
    }
}
END_TEST

START_TEST(draws) {
    dlc_shape in = {3, {1, 5, 6}}, out;
    dlc_augment augment = {.scale = 1, .mirror = 1, .crop = 4, .pad = 1};
    int tops[4] = {0}, lefts[5] = {0}, mirrored = 0;
    ck_assert_int_eq(dlc_augment_shape(&augment, &in, &out), DLC_OK);
    ck_assert_int_eq(out.dims[1], 4);
    ck_assert_int_eq(out.dims[2], 4);
    for (uint64_t position = 0; position < 4000; position++) {
        dlc_cut cut = dlc_augment_draw(&in, &out, &augment, 9, position);
        dlc_cut again = dlc_augment_draw(&in, &out, &augment, 9, position);
        if (cut.top != again.top || cut.left != again.left ||
            cut.mirror != again.mirror)
            ck_abort_msg("position %d has two cuts", (int)position);
        if (cut.top < 0 || cut.top > 3 || cut.left < 0 || cut.left > 4)
            ck_abort_msg("cut at %lld, %lld", (long long)cut.top, (long long)cut.left);
        tops[cut.top]++;
        lefts[cut.left]++;
        mirrored += cut.mirror;
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_lt(abs(tops[i] - 1000), 150);
    for (int i = 0; i < 5; i++)
        ck_assert_int_lt(abs(lefts[i] - 800), 150);
    ck_assert_int_lt(abs(mirrored - 2000), 200);

    augment.mirror = 0;
    for (uint64_t position = 0; position < 100; position++)
        ck_assert_int_eq(dlc_augment_draw(&in, &out, &augment, 9, position).mirror, 0);
}
END_TEST

START_TEST(middle) {
    dlc_shape in = {3, {1, 32, 28}}, out;
    dlc_augment augment = {.scale = 1, .mirror = 1, .crop = 24};
    ck_assert_int_eq(dlc_augment_shape(&augment, &in, &out), DLC_OK);
    dlc_cut cut = dlc_augment_middle(&in, &out, &augment);
    ck_assert_int_eq(cut.top, 4);
    ck_assert_int_eq(cut.left, 2);
    ck_assert_int_eq(cut.mirror, 0);
    augment.pad = 4;
    ck_assert_int_eq(dlc_augment_shape(&augment, &in, &out), DLC_OK);
    cut = dlc_augment_middle(&in, &out, &augment);
    ck_assert_int_eq(cut.top, 8);
    ck_assert_int_eq(cut.left, 6);
    /* Without an exact center the upper left of the four candidates is used. */
    augment.crop = 25;
    in.dims[2] = 32;
    ck_assert_int_eq(dlc_augment_shape(&augment, &in, &out), DLC_OK);
    cut = dlc_augment_middle(&in, &out, &augment);
    ck_assert_int_eq(cut.top, 7);
    ck_assert_int_eq(cut.left, 7);
}
END_TEST

START_TEST(padding_alone_grows) {
    dlc_shape in = {3, {2, 3, 5}}, out;
    dlc_augment augment = {.scale = 1, .pad = 2};
    ck_assert_int_eq(dlc_augment_shape(&augment, &in, &out), DLC_OK);
    ck_assert_int_eq(out.dims[0], 2);
    ck_assert_int_eq(out.dims[1], 7);
    ck_assert_int_eq(out.dims[2], 9);
}
END_TEST

START_TEST(refuses_what_does_not_fit) {
    static const double means[2] = {0, 0};
    dlc_shape in = {3, {3, 8, 6}}, out;
    dlc_augment two = {.scale = 1, .mean = means, .means = 2};
    dlc_augment large = {.scale = 1, .crop = 9, .pad = 1};
    ck_assert_int_eq(dlc_augment_shape(&two, &in, &out), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "mean has 2 values, but the samples have 3 channels");
    ck_assert_int_eq(dlc_augment_shape(&large, &in, &out), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "crop is 9, but the samples are only 10 x 8");
}
END_TEST

/* The option table is valid, and its settings have an effect. */
START_TEST(options) {
    const char *const reserved[] = {"data", NULL};
    const char *const sets[] = {"data.shuffle=no", "data.scale=0.5", "data.mean=1,2,3",
                                "data.mirror=yes", "data.crop=24",   "data.pad=4",
                                "data.prefetch=9", "data.threads=3"};
    const dlc_option *const tables[] = {dlc_feed_options};
    dlc_problems problems = {0};
    dlc_config *config;
    dlc_settings *settings;
    dlc_feed_args args = {.count = 3};
    ck_assert_int_eq(dlc_options_check(dlc_feed_options), DLC_OK);
    ck_assert_int_eq(dlc_config_load(NULL, reserved, sets, 8, &problems, &config),
                     DLC_OK);
    ck_assert_int_eq(dlc_settings_make(config, "data", tables, 1, &problems, &settings),
                     DLC_OK);
    ck_assert_int_eq(dlc_problems_report(&problems), DLC_OK);
    dlc_feed_configure(dlc_host_services(), settings, &args);
    ck_assert_int_eq(args.count, 3); /* not its business */
    ck_assert_int_eq(args.shuffle, 0);
    ck_assert_int_eq(args.prefetch, 9);
    ck_assert_int_eq(args.threads, 3);
    ck_assert_float_eq(args.augment.scale, 0.5f);
    ck_assert_uint_eq(args.augment.means, 3);
    ck_assert_double_eq(args.augment.mean[2], 3);
    ck_assert_int_eq(args.augment.mirror, 1);
    ck_assert_int_eq(args.augment.crop, 24);
    ck_assert_int_eq(args.augment.pad, 4);
    dlc_settings_free(settings);

    ck_assert_int_eq(dlc_settings_make(NULL, "data", tables, 1, &problems, &settings),
                     DLC_OK);
    dlc_feed_configure(dlc_host_services(), settings, &args);
    ck_assert_int_eq(args.shuffle, 1);
    ck_assert_int_eq(args.prefetch, 0);
    ck_assert_float_eq(args.augment.scale, 1);
    ck_assert_uint_eq(args.augment.means, 0);
    ck_assert_int_eq(args.augment.mirror, 0);
    dlc_settings_free(settings);
    dlc_config_free(config);
    dlc_problems_free(&problems);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data.augment");
    TCase *tcase = tcase_create("augment");
    tcase_add_loop_test(tcase, same_as_reference, 0, 50);
    tcase_add_test(tcase, draws);
    tcase_add_test(tcase, middle);
    tcase_add_test(tcase, padding_alone_grows);
    tcase_add_test(tcase, refuses_what_does_not_fit);
    tcase_add_test(tcase, options);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
