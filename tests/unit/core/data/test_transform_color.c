/* Tests changes of color (core/data/transform_color.c) against torchvision's
 * formulas in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "data/transform.h"
#include "data/transform_kinds.h"
#include "listed.h"
#include "support/test.h"

enum { HEIGHT = 19, WIDTH = 23, PIXELS = HEIGHT * WIDTH };

typedef struct pixel {
    double r, g, b;
} pixel;

/* ---- torchvision.transforms.functional, for images of floats ------------------ */

static double limit(double value) {
    return fmin(1, fmax(0, value));
}

static pixel blend(pixel x, pixel y, double factor) {
    return (pixel){limit(factor * x.r + (1 - factor) * y.r),
                   limit(factor * x.g + (1 - factor) * y.g),
                   limit(factor * x.b + (1 - factor) * y.b)};
}

static pixel gray(pixel x) {
    double value = 0.2989 * x.r + 0.587 * x.g + 0.114 * x.b;
    return (pixel){value, value, value};
}

static void adjust_brightness(pixel *image, double factor) {
    for (int i = 0; i < PIXELS; i++)
        image[i] = blend(image[i], (pixel){0, 0, 0}, factor);
}

static void adjust_contrast(pixel *image, double factor) {
    double sum = 0;
    for (int i = 0; i < PIXELS; i++)
        sum += gray(image[i]).r;
    pixel mean = {sum / PIXELS, sum / PIXELS, sum / PIXELS};
    for (int i = 0; i < PIXELS; i++)
        image[i] = blend(image[i], mean, factor);
}

static void adjust_saturation(pixel *image, double factor) {
    for (int i = 0; i < PIXELS; i++)
        image[i] = blend(image[i], gray(image[i]), factor);
}

/* rgb_to_hsv, the hue moved, hsv_to_rgb. */
static pixel turn_hue(pixel x, double turns) {
    double most = fmax(x.r, fmax(x.g, x.b)), least = fmin(x.r, fmin(x.g, x.b));
    double range = most - least, divisor = range == 0 ? 1 : range;
    double saturation = range / (most == 0 ? 1 : most);
    double rc = (most - x.r) / divisor, gc = (most - x.g) / divisor,
           bc = (most - x.b) / divisor;
    double h = most == x.r ? bc - gc : most == x.g ? 2 + rc - bc : 4 + gc - rc;
    h = fmod(h / 6 + 1, 1);
    h = fmod(h + turns + 1, 1);
    double sixth = floor(h * 6), f = h * 6 - sixth, v = most, s = saturation;
    double p = limit(v * (1 - s)), q = limit(v * (1 - s * f)),
           t = limit(v * (1 - s * (1 - f)));
    switch ((int)sixth % 6) {
    case 0:
        return (pixel){v, t, p};
    case 1:
        return (pixel){q, v, p};
    case 2:
        return (pixel){p, v, t};
    case 3:
        return (pixel){p, q, v};
    case 4:
        return (pixel){t, p, v};
    default:
        return (pixel){v, p, q};
    }
}

static void adjust_hue(pixel *image, double turns) {
    for (int i = 0; i < PIXELS; i++)
        image[i] = turn_hue(image[i], turns);
}

static void (*const reference[])(pixel *image, double factor) = {
    adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue};
static void (*const tested[])(const dlc_color *color, float factor) = {
    dlc_color_brightness, dlc_color_contrast, dlc_color_saturation, dlc_color_hue};

/* ---- Images ------------------------------------------------------------------ */

/* Noise, with some gray, black, white and pure colors. */
static void make_pixels(uint8_t bytes[3 * PIXELS], pixel *image) {
    dlc_random random = dlc_random_make(5, 6);
    for (int i = 0; i < 3 * PIXELS; i++) {
        uint32_t word = dlc_random_u32(&random);
        bytes[i] = (uint8_t)(word >> 8 & 3 ? word : word & 1 ? 255 : 0);
    }
    for (int i = 0; i < PIXELS; i++) {
        if (i % 5 == 0)
            bytes[3 * i + 1] = bytes[3 * i];
        if (i % 15 == 0)
            bytes[3 * i + 2] = bytes[3 * i];
        image[i] = (pixel){bytes[3 * i] / 255., bytes[3 * i + 1] / 255.,
                           bytes[3 * i + 2] / 255.};
    }
}

static void check_planes(const float planes[3][PIXELS], const pixel *expected) {
    for (int i = 0; i < PIXELS; i++) {
        ck_assert_double_eq_tol((double)planes[0][i], expected[i].r, 1e-5);
        ck_assert_double_eq_tol((double)planes[1][i], expected[i].g, 1e-5);
        ck_assert_double_eq_tol((double)planes[2][i], expected[i].b, 1e-5);
    }
}

/* Planes of bytes, which were rounded once. */
static void check_bytes(const uint8_t *got, const pixel *expected) {
    const double most = 0.5 / 255 + 1e-3;
    for (int i = 0; i < PIXELS; i++) {
        ck_assert_double_eq_tol(got[i] / 255., expected[i].r, most);
        ck_assert_double_eq_tol(got[PIXELS + i] / 255., expected[i].g, most);
        ck_assert_double_eq_tol(got[2 * PIXELS + i] / 255., expected[i].b, most);
    }
}

/* ---- Tests ------------------------------------------------------------------- */

TEST_EACH(as_torchvision, 28) {
    static const double factors[] = {0, 0.25, 1, 1.7, -0.5, -0.11, 0.5};
    uint8_t bytes[3 * PIXELS];
    pixel expected[PIXELS];
    float planes[3][PIXELS];
    dlc_color color = {
        .plane = {planes[0], planes[1], planes[2]}, .channels = 3, .count = PIXELS};
    int what = _i % 4;
    double factor = factors[_i / 4];
    if (what != 3)
        factor = fabs(factor);
    make_pixels(bytes, expected);
    dlc_color_load(&color, bytes, 3, 1, 0, PIXELS);
    tested[what](&color, (float)factor);
    reference[what](expected, factor);
    check_planes((const float(*)[PIXELS])planes, expected);
}

/* All four in the order that was drawn, rounded to bytes once. */
TEST(jitter) {
    uint8_t bytes[3 * PIXELS], got[3 * PIXELS];
    pixel expected[PIXELS];
    dlc_transforms *list = listed("color_jitter(0.4, 0.3, hue=0.1, saturation=0.5)");
    dlc_image image = dlc_image_interleaved(bytes, 3, HEIGHT, WIDTH);
    for (uint64_t position = 0; position < 30; position++) {
        dlc_transform_plan plan;
        make_pixels(bytes, expected);
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, HEIGHT, WIDTH, &plan),
                         DLC_OK);
        const dlc_step_plan *step = &plan.step[0];
        for (int i = 0; i < 4; i++)
            reference[step->choice[i]](expected, step->amount[step->choice[i]]);
        listed_apply(list, position, &image, DLC_U8, got);
        check_bytes(got, expected);
    }
    dlc_transforms_free(list);
}

TEST(jitter_draws) {
    dlc_transforms *list = listed("color_jitter(0.4, 3, 0, 0.1)");
    int first[4] = {0}, bright[4] = {0};
    for (uint64_t position = 0; position < 4000; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, 9, 9, &plan), DLC_OK);
        const dlc_step_plan *step = &plan.step[0];
        int64_t bits = 0;
        for (int i = 0; i < 4; i++)
            bits |= (int64_t)1 << step->choice[i];
        ck_assert_int_eq(bits, 15);
        first[step->choice[0]]++;
        ck_assert(step->amount[0] >= 0.6 && step->amount[0] <= 1.4);
        bright[(int)((step->amount[0] - 0.6) / 0.2000001)]++;
        ck_assert(step->amount[1] >= 0 && step->amount[1] <= 4);
        ck_assert(step->amount[3] >= -0.1 && step->amount[3] <= 0.1);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_lt(abs(first[i] - 1000), 150);
        ck_assert_int_lt(abs(bright[i] - 1000), 150);
    }
    dlc_transforms_free(list);
}

/* What jitter leaves alone it does not round either. */
TEST(nothing_to_do) {
    uint8_t bytes[3 * PIXELS], got[3 * PIXELS];
    pixel expected[PIXELS];
    make_pixels(bytes, expected);
    dlc_transforms *list = listed("color_jitter, grayscale(0), lighting(0)");
    dlc_image image = dlc_image_interleaved(bytes, 3, HEIGHT, WIDTH);
    listed_apply(list, 1, &image, DLC_U8, got);
    for (int i = 0; i < 3 * PIXELS; i++)
        ck_assert_int_eq(got[i % 3 * PIXELS + i / 3], bytes[i]);
    dlc_transforms_free(list);
}

TEST(grayscale) {
    uint8_t bytes[3 * PIXELS], got[3 * PIXELS];
    pixel expected[PIXELS];
    make_pixels(bytes, expected);
    for (int i = 0; i < PIXELS; i++)
        expected[i] = gray(expected[i]);
    dlc_transforms *list = listed("grayscale");
    dlc_image image = dlc_image_interleaved(bytes, 3, HEIGHT, WIDTH);
    listed_apply(list, 1, &image, DLC_U8, got);
    check_bytes(got, expected);
    dlc_transforms_free(list);
}

TEST(gray_images) {
    uint8_t bytes[PIXELS], got[PIXELS];
    dlc_transforms *list = listed("color_jitter(0, 0, 0.5, 0.5), grayscale");
    dlc_image image = dlc_image_interleaved(bytes, 1, HEIGHT, WIDTH);
    for (int i = 0; i < PIXELS; i++)
        bytes[i] = (uint8_t)i;
    listed_apply(list, 1, &image, DLC_U8, got);
    ck_assert_mem_eq(got, bytes, PIXELS);
    dlc_transforms_free(list);
}

/* The shift of the colors: along the components, as far as they vary. */
TEST(lighting) {
    static const double value[3] = {0.2175, 0.0188, 0.0045};
    static const double vector[3][3] = {{-0.5675, 0.7192, 0.4009},
                                        {-0.5808, -0.0045, -0.8140},
                                        {-0.5836, -0.6948, 0.4203}};
    enum { DRAWS = 20000 };
    dlc_transforms *list = listed("lighting(0.1)");
    double sum[3][3] = {{0}};
    for (uint64_t position = 0; position < DRAWS; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, 9, 9, &plan), DLC_OK);
        const double *shift = plan.step[0].amount;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                sum[i][j] += shift[i] * shift[j];
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            double covariance = 0, scale = 0.01 * 0.2175 * 0.2175;
            for (int k = 0; k < 3; k++)
                covariance += 0.01 * value[k] * value[k] * vector[i][k] * vector[j][k];
            ck_assert_double_eq_tol(sum[i][j] / DRAWS, covariance, 0.02 * scale);
        }
    uint8_t bytes[3] = {100, 100, 100}, got[3];
    dlc_transform_plan plan;
    dlc_image image = dlc_image_interleaved(bytes, 3, 1, 1);
    ck_assert_int_eq(dlc_transforms_plan(list, 3, 1, 1, 1, &plan), DLC_OK);
    listed_apply(list, 1, &image, DLC_U8, got);
    for (int c = 0; c < 3; c++)
        ck_assert_double_eq_tol((double)got[c], 100 + 255 * plan.step[0].amount[c],
                                0.51);
    dlc_transforms_free(list);
}
