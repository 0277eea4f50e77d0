/* Tests resizing (core/data/resample.c, transform_resize.c) against Pillow, the parts
 * that are read, images that were decoded smaller, and the boxes of
 * random_resized_crop. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "data/transform.h"
#include "listed.h"
#include "pillow_image.h"
#include "support/test.h"

TEST_EACH(as_pillow, COUNT(resized)) {
    const struct resized *expected = &resized[_i];
    char text[128];
    uint8_t pixels[PILLOW_WIDTH * PILLOW_HEIGHT * 3], got[9 * 7 * 3];
    (void)snprintf(text, sizeof text, "resize(height=%d, width=%d, interpolation=%s)",
                   expected->height, expected->width, expected->interpolation);
    dlc_transforms *list = listed(text);
    dlc_image image = dlc_image_interleaved(pixels, 3, PILLOW_HEIGHT, PILLOW_WIDTH);
    pillow_image(pixels);
    listed_apply(list, 0, &image, DLC_U8, got);
    int plane = expected->width * expected->height;
    for (int i = 0; i < plane; i++)
        for (int c = 0; c < 3; c++)
            ck_assert_int_le(abs(got[c * plane + i] - expected->pixels[3 * i + c]), 1);
    dlc_transforms_free(list);
}

/* One channel and five take other loops than three. */
TEST_RANGE(channels_do_not_matter, 1, 6) {
    uint8_t three[PILLOW_WIDTH * PILLOW_HEIGHT * 3],
        other[PILLOW_WIDTH * PILLOW_HEIGHT * 5], got[5 * 7 * 6], expected[3 * 7 * 6];
    int channels = _i;
    pillow_image(three);
    for (int i = 0; i < PILLOW_WIDTH * PILLOW_HEIGHT; i++)
        for (int c = 0; c < channels; c++)
            other[i * channels + c] = three[3 * i + c % 3];
    dlc_transforms *list = listed("resize(height=7, width=6)");
    dlc_image image = dlc_image_interleaved(three, 3, PILLOW_HEIGHT, PILLOW_WIDTH);
    listed_apply(list, 0, &image, DLC_U8, expected);
    image = dlc_image_interleaved(other, channels, PILLOW_HEIGHT, PILLOW_WIDTH);
    listed_apply(list, 0, &image, DLC_U8, got);
    for (int c = 0; c < channels; c++)
        ck_assert_mem_eq(got + c * 42, expected + c % 3 * 42, 42);
    dlc_transforms_free(list);
}

TEST(nearest_takes_the_pixel_under_the_center) {
    uint8_t pixels[6] = {0, 10, 20, 30, 40, 50}, got[9];
    dlc_transforms *list = listed("resize(height=1, width=3, interpolation=nearest)");
    dlc_image image = dlc_image_interleaved(pixels, 1, 1, 6);
    listed_apply(list, 0, &image, DLC_U8, got);
    ck_assert_mem_eq(got, ((uint8_t[]){10, 30, 50}), 3);
    dlc_transforms_free(list);
}

TEST(same_size_is_the_same_image) {
    uint8_t pixels[PILLOW_WIDTH * PILLOW_HEIGHT * 3],
        got[PILLOW_WIDTH * PILLOW_HEIGHT * 3];
    dlc_transforms *list = listed("resize(8)");
    dlc_image image = dlc_image_interleaved(pixels, 3, PILLOW_HEIGHT, PILLOW_WIDTH);
    pillow_image(pixels);
    listed_apply(list, 0, &image, DLC_U8, got);
    for (int i = 0; i < PILLOW_WIDTH * PILLOW_HEIGHT; i++)
        for (int c = 0; c < 3; c++)
            ck_assert_int_eq(got[c * PILLOW_WIDTH * PILLOW_HEIGHT + i],
                             pixels[3 * i + c]);
    dlc_transforms_free(list);
}

/* ---- Parts ------------------------------------------------------------------- */

static const char *const partial[] = {
    "resize(20), center_crop(16)",
    "resize(20, interpolation=bicubic), random_crop(16), mirror",
    "mirror, resize(20, interpolation=area), random_crop(16)",
    "random_resized_crop(16)",
    "mirror, random_resized_crop(16, interpolation=bicubic)",
    "random_crop(height=18, width=14, padding=3), mirror, resize(height=16, width=16)",
    "center_crop(20), random_resized_crop(16, scale=(0.05, 0.2)), mirror(1)",
    "resize(30), center_crop(20), resize(height=16, width=16)",
};

enum { LARGE_HEIGHT = 37, LARGE_WIDTH = 49 };

/* Copies a part of an image to memory without room for more, so that reading beyond it
 * would be found. */
static dlc_image cut_out(const dlc_image *whole, const dlc_rect *part,
                         uint8_t **memory) {
    size_t row = (size_t)(part->width * whole->channels);
    *memory = malloc((size_t)part->height * row);
    for (int64_t y = 0; y < part->height; y++)
        memcpy(*memory + (size_t)y * row,
               (const uint8_t *)whole->pixels + (part->y + y) * whole->row +
                   part->x * whole->channels,
               row);
    dlc_image made = dlc_image_interleaved(*memory, whole->channels, part->height,
                                           part->width);
    made.x = (double)part->x;
    made.y = (double)part->y;
    return made;
}

/* The region of the plan alone gives the same as the whole image. */
TEST_EACH(region_is_enough, COUNT(partial)) {
    static uint8_t pixels[LARGE_HEIGHT * LARGE_WIDTH * 3];
    uint8_t expected[16 * 16 * 3], got[16 * 16 * 3];
    dlc_random random = dlc_random_make(1, 2);
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)dlc_random_u32(&random);
    dlc_transforms *list = listed(partial[_i]);
    dlc_image whole = dlc_image_interleaved(pixels, 3, LARGE_HEIGHT, LARGE_WIDTH);
    dlc_transform_scratch scratch = {0};
    int smaller = 0;
    for (uint64_t position = 0; position < 40; position++) {
        dlc_transform_plan plan;
        uint8_t *memory = NULL;
        ck_assert_int_eq(
            dlc_transforms_plan(list, 3, position, LARGE_HEIGHT, LARGE_WIDTH, &plan),
            DLC_OK);
        smaller += plan.region.width < LARGE_WIDTH;
        dlc_image part = cut_out(&whole, &plan.region, &memory);
        listed_apply(list, position, &whole, DLC_U8, expected);
        ck_assert_int_eq(
            dlc_transforms_apply(list, &plan, &part, &scratch, DLC_U8, got), DLC_OK);
        ck_assert_mem_eq(got, expected, sizeof got);
        free(memory);
    }
    ck_assert_int_gt(smaller, 20);
    dlc_transform_scratch_free(&scratch);
    dlc_transforms_free(list);
}

/* ---- Images that were decoded smaller ---------------------------------------- */

enum { SMOOTH_HEIGHT = 201, SMOOTH_WIDTH = 303 };

static double smooth(double y, double x) {
    return 127.5 + 60 * sin(x / 37) + 60 * cos(y / 29);
}

/* A decoder that shrinks by averaging squares of `shrink` pixels. */
static dlc_image shrink_by(int64_t shrink, const dlc_rect *region, uint8_t *memory) {
    int64_t left = region->x / shrink, top = region->y / shrink;
    int64_t right = (region->x + region->width + shrink - 1) / shrink;
    int64_t bottom = (region->y + region->height + shrink - 1) / shrink;
    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++) {
            double half = (double)shrink / 2;
            memory[(y - top) * (right - left) + x - left] = (uint8_t)lrint(smooth(
                (double)(y * shrink) + half - 0.5, (double)(x * shrink) + half - 0.5));
        }
    dlc_image made = dlc_image_interleaved(memory, 1, bottom - top, right - left);
    made.x = (double)left;
    made.y = (double)top;
    made.scale = 1 / (double)shrink;
    return made;
}

static const char *const scalable[] = {
    "resize(50), center_crop(40)",
    "random_resized_crop(40, scale=(0.5, 1)), mirror",
    "mirror(1), random_resized_crop(40, scale=(0.5, 1))",
    "mirror, resize(height=40, width=40)",
};

/* The result is the same but for the rounding, wherever the pixels lie. */
TEST_EACH(smaller_image_gives_the_same, COUNT(scalable)) {
    static uint8_t pixels[SMOOTH_HEIGHT * SMOOTH_WIDTH],
        small[SMOOTH_HEIGHT * SMOOTH_WIDTH];
    uint8_t expected[40 * 40], got[40 * 40];
    for (int y = 0; y < SMOOTH_HEIGHT; y++)
        for (int x = 0; x < SMOOTH_WIDTH; x++)
            pixels[y * SMOOTH_WIDTH + x] = (uint8_t)lrint(smooth(y, x));
    dlc_transforms *list = listed(scalable[_i]);
    dlc_image whole = dlc_image_interleaved(pixels, 1, SMOOTH_HEIGHT, SMOOTH_WIDTH);
    dlc_transform_scratch scratch = {0};
    for (uint64_t position = 0; position < 20; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(
            dlc_transforms_plan(list, 3, position, SMOOTH_HEIGHT, SMOOTH_WIDTH, &plan),
            DLC_OK);
        ck_assert_double_le(plan.scale, 0.5);
        ck_assert_double_gt(plan.scale, 0.1);
        dlc_image image = shrink_by(2, &plan.region, small);
        listed_apply(list, position, &whole, DLC_U8, expected);
        ck_assert_int_eq(
            dlc_transforms_apply(list, &plan, &image, &scratch, DLC_U8, got), DLC_OK);
        for (int i = 0; i < 40 * 40; i++)
            ck_assert_int_le(abs(got[i] - expected[i]), 2);
    }
    dlc_transform_scratch_free(&scratch);
    dlc_transforms_free(list);
}

/* Pixels are counted before the first resize, so they may not be scaled. */
TEST(crops_of_pixels_are_not_scaled) {
    dlc_transforms *list = listed("center_crop(100), resize(height=10, width=10)");
    dlc_transform_plan plan;
    ck_assert_int_eq(dlc_transforms_plan(list, 1, 0, 200, 300, &plan), DLC_OK);
    ck_assert_double_eq(plan.scale, 1);
    ck_assert_int_eq(plan.region.x, 100);
    ck_assert_int_eq(plan.region.width, 100);
    ck_assert_int_eq(plan.region.height, 100);
    dlc_transforms_free(list);
    list = listed("resize(height=400, width=150)");
    ck_assert_int_eq(dlc_transforms_plan(list, 1, 0, 200, 300, &plan), DLC_OK);
    ck_assert_double_eq(plan.scale, 1);
    dlc_transforms_free(list);
}

/* ---- random_resized_crop ----------------------------------------------------- */

/* torchvision's RandomResizedCrop.get_params, with random numbers of its own. */
static dlc_rect reference_box(dlc_random *random, int64_t height, int64_t width) {
    for (int i = 0; i < 10; i++) {
        double area = (double)(height * width) *
                      (0.08 + 0.92 * (double)dlc_random_uniform(random));
        double low = log(3. / 4), high = log(4. / 3);
        double ratio = exp(low + (high - low) * (double)dlc_random_uniform(random));
        int64_t w = lrint(sqrt(area * ratio)), h = lrint(sqrt(area / ratio));
        if (w > 0 && w <= width && h > 0 && h <= height)
            return (dlc_rect){
                (int64_t)dlc_random_below(random, (uint64_t)(width - w + 1)),
                (int64_t)dlc_random_below(random, (uint64_t)(height - h + 1)), w, h};
    }
    if (width * 3 < height * 9 / 4) {
        int64_t h = lrint((double)width / 0.75);
        return (dlc_rect){0, (height - h) / 2, width, h};
    }
    int64_t w = lrint((double)height * 4 / 3);
    return (dlc_rect){(width - w) / 2, 0, w, height};
}

enum { DRAWS = 20000, BINS = 10 };

static void count(const dlc_rect *box, int64_t height, int64_t width,
                  int bins[5][BINS]) {
    double room = (double)(width - box->width + 1);
    double values[5] = {
        (double)(box->width * box->height) / (double)(width * height),
        (double)box->width / (double)box->height - 0.5,
        ((double)box->x + 0.5) / room,
        ((double)box->y + 0.5) / (double)(height - box->height + 1),
        (double)(box->x + box->width) / (double)(width + 1),
    };
    for (int i = 0; i < 5; i++)
        bins[i][(int)fmin(BINS - 1, fmax(0, values[i] * BINS))]++;
}

/* Two samples of 20,000 boxes: their histograms differ by chance only. */
TEST_EACH(boxes_are_those_of_torchvision, 4) {
    static const int64_t sizes[][2] = {{375, 500}, {500, 333}, {64, 300}, {300, 40}};
    int64_t height = sizes[_i][0], width = sizes[_i][1];
    int got[5][BINS] = {{0}}, expected[5][BINS] = {{0}};
    dlc_transforms *list = listed("random_resized_crop(224)");
    dlc_random random = dlc_random_make(77, 5);
    for (uint64_t position = 0; position < DRAWS; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, height, width, &plan),
                         DLC_OK);
        const dlc_rect *box = &plan.step[0].box;
        ck_assert(box->x >= 0 && box->y >= 0 && box->x + box->width <= width &&
                  box->y + box->height <= height);
        count(box, height, width, got);
        dlc_rect other = reference_box(&random, height, width);
        count(&other, height, width, expected);
    }
    for (int i = 0; i < 5; i++)
        for (int bin = 0; bin < BINS; bin++) {
            double sum = got[i][bin] + expected[i][bin];
            double apart = fabs((double)(got[i][bin] - expected[i][bin]));
            ck_assert_msg(apart <= 5 * sqrt(sum) + 5, "value %d, bin %d: %d and %d", i,
                          bin, got[i][bin], expected[i][bin]);
        }
    dlc_transforms_free(list);
}
