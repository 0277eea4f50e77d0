/* Tests transforms that erase, rotate and combine (core/data/transform_erase.c,
 * transform_move.c, transform_randaugment.c), the last against Pillow. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "data/transform.h"
#include "data/transform_kinds.h"
#include "listed.h"
#include "pillow_image.h"
#include "support/test.h"

/* ---- Erasing ----------------------------------------------------------------- */

enum { SIDE = 40 };

/* The box of the plan, and nothing else, is erased. */
static void check_box(const uint8_t *plane, const dlc_rect *box, int erased) {
    for (int64_t y = 0; y < SIDE; y++)
        for (int64_t x = 0; x < SIDE; x++) {
            int inside = y >= box->y && y < box->y + box->height && x >= box->x &&
                         x < box->x + box->width;
            ck_assert_int_eq(plane[y * SIDE + x], inside ? erased : 200);
        }
}

TEST_EACH(erases_the_box, 4) {
    static const struct {
        const char *text;
        int erased;
    } lists[] = {
        {"random_erasing(p=1), normalize(mean=(10, 20.4, 30))", 10},
        {"random_erasing(p=1, fill=zero), normalize(10)", 0},
        {"cutout(9), normalize(mean=(10, 20.4, 30))", 10},
        {"cutout(8, fill=zero)", 0},
    };
    static uint8_t pixels[SIDE * SIDE * 3], got[SIDE * SIDE * 3];
    dlc_transforms *list = listed(lists[_i].text);
    dlc_image image = dlc_image_interleaved(pixels, 3, SIDE, SIDE);
    memset(pixels, 200, sizeof pixels);
    for (uint64_t position = 0; position < 60; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, SIDE, SIDE, &plan),
                         DLC_OK);
        ck_assert_int_gt(plan.step[0].box.width, 0);
        listed_apply(list, position, &image, DLC_U8, got);
        check_box(got, &plan.step[0].box, lists[_i].erased);
        check_box(got + SIDE * SIDE, &plan.step[0].box, 2 * lists[_i].erased);
        ck_assert_uint_eq(pixels[0], 200); /* the caller's image stays */
    }
    dlc_transforms_free(list);
}

TEST(noise_has_mean_and_deviation) {
    static uint8_t pixels[SIDE * SIDE], got[SIDE * SIDE];
    dlc_transforms *list = listed(
        "random_erasing(1, scale=(0.5, 0.6), fill=noise), normalize(120, std=20)");
    dlc_image image = dlc_image_interleaved(pixels, 1, SIDE, SIDE);
    double sum = 0, squares = 0, count = 0;
    for (uint64_t position = 0; position < 20; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, SIDE, SIDE, &plan),
                         DLC_OK);
        const dlc_rect *box = &plan.step[0].box;
        listed_apply(list, position, &image, DLC_U8, got);
        for (int64_t y = box->y; y < box->y + box->height; y++)
            for (int64_t x = box->x; x < box->x + box->width; x++) {
                double value = got[y * SIDE + x];
                sum += value;
                squares += value * value;
                count++;
            }
    }
    ck_assert_double_eq_tol(sum / count, 120, 1);
    ck_assert_double_eq_tol(sqrt(squares / count - sum / count * sum / count), 20, 1);
    dlc_transforms_free(list);
}

TEST(erasing_draws) {
    dlc_transforms *list = listed(
        "random_erasing(0.25, scale=(0.1, 0.2), ratio=(0.5, 2))");
    int erased = 0;
    for (uint64_t position = 0; position < 4000; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, 100, 200, &plan),
                         DLC_OK);
        const dlc_rect *box = &plan.step[0].box;
        erased += box->width > 0;
        double area = (double)(box->width * box->height) / 20000;
        double ratio = (double)box->height / (double)box->width;
        ck_assert(!box->width || (area > 0.095 && area < 0.205));
        ck_assert(!box->width || (ratio > 0.48 && ratio < 2.05));
        ck_assert(box->x >= 0 && box->x + box->width <= 200);
        ck_assert(box->y >= 0 && box->y + box->height <= 100);
    }
    ck_assert_int_lt(abs(erased - 1000), 120);
    dlc_transforms_free(list);
}

/* The part that a later crop shows has the hole where the whole image has it. */
TEST(hole_moves_with_the_crop) {
    static uint8_t pixels[SIDE * SIDE], got[20 * 20];
    dlc_transforms *list = listed("cutout(15, fill=zero), mirror, center_crop(20)");
    dlc_image image = dlc_image_interleaved(pixels, 1, SIDE, SIDE);
    int shown = 0;
    memset(pixels, 200, sizeof pixels);
    for (uint64_t position = 0; position < 60; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, SIDE, SIDE, &plan),
                         DLC_OK);
        const dlc_rect *box = &plan.step[0].box;
        listed_apply(list, position, &image, DLC_U8, got);
        for (int64_t y = 0; y < 20; y++)
            for (int64_t x = 0; x < 20; x++) {
                int64_t column = plan.step[1].choice[0] ? SIDE - 1 - x - 10 : x + 10;
                int inside = y + 10 >= box->y && y + 10 < box->y + box->height &&
                             column >= box->x && column < box->x + box->width;
                ck_assert_int_eq(got[y * 20 + x], inside ? 0 : 200);
                shown += inside;
            }
    }
    ck_assert_int_gt(shown, 100);
    dlc_transforms_free(list);
}

/* ---- Maps -------------------------------------------------------------------- */

TEST(quarter_turns) {
    uint8_t pixels[3 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, got[3 * 3];
    dlc_image from = dlc_image_interleaved(pixels, 1, 3, 3),
              to = dlc_image_interleaved(got, 1, 3, 3);
    for (int bilinear = 0; bilinear < 2; bilinear++) {
        dlc_affine quarter = dlc_affine_rotate(90), half = dlc_affine_rotate(180);
        dlc_affine_map(&quarter, bilinear, &from, &to);
        ck_assert_mem_eq(got, ((uint8_t[]){3, 6, 9, 2, 5, 8, 1, 4, 7}), 9);
        dlc_affine_map(&half, bilinear, &from, &to);
        ck_assert_mem_eq(got, ((uint8_t[]){9, 8, 7, 6, 5, 4, 3, 2, 1}), 9);
    }
}

TEST(between_pixels) {
    uint8_t pixels[2 * 2 * 3] = {0, 10, 20, 100, 110, 120, 200, 0, 0, 100, 80, 40},
                           got[2 * 2 * 3];
    dlc_image from = dlc_image_interleaved(pixels, 3, 2, 2),
              to = dlc_image_interleaved(got, 3, 2, 2);
    dlc_affine half = {.a = 1, .c = 0.5, .e = 1, .f = 0.5};
    dlc_affine_map(&half, 1, &from, &to);
    /* The mean of the four; of two; of one; the rest is outside and 0. */
    ck_assert_mem_eq(
        got, ((uint8_t[]){100, 50, 45, 50, 48, 40, 75, 20, 10, 25, 20, 10}), 12);
}

TEST(angles) {
    dlc_transforms *list = listed("rotate(30)");
    int left = 0, large = 0;
    for (uint64_t position = 0; position < 4000; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, 9, 9, &plan), DLC_OK);
        double angle = plan.step[0].amount[0];
        ck_assert(angle >= -30 && angle <= 30);
        left += angle > 0;
        large += fabs(angle) > 15;
    }
    ck_assert_int_lt(abs(left - 2000), 200);
    ck_assert_int_lt(abs(large - 2000), 200);
    dlc_transforms_free(list);
}

/* ---- rand_augment ------------------------------------------------------------ */

/* The image that entry `number` of the table was tried with. */
static dlc_image make_image(int number, uint8_t *pixels, uint8_t *tiled) {
    pillow_image(pixels);
    for (int i = 0; number == 12 && i < PILLOW_WIDTH * PILLOW_HEIGHT * 3; i++)
        pixels[i] = (uint8_t)(40 + pixels[i] / 2);
    if (number != 13)
        return dlc_image_interleaved(pixels, 3, PILLOW_HEIGHT, PILLOW_WIDTH);
    int row = PILLOW_WIDTH * 3;
    for (int y = 0; y < 3 * PILLOW_HEIGHT; y++)
        for (int x = 0; x < 3; x++)
            memcpy(tiled + (y * 3 + x) * row, pixels + y % PILLOW_HEIGHT * row,
                   (size_t)row);
    return dlc_image_interleaved(tiled, 3, 3 * PILLOW_HEIGHT, 3 * PILLOW_WIDTH);
}

TEST_EACH(changes_as_pillow, COUNT(changed)) {
    const struct changed *expected = &changed[_i];
    uint8_t pixels[PILLOW_WIDTH * PILLOW_HEIGHT * 3],
        tiled[9 * PILLOW_WIDTH * PILLOW_HEIGHT * 3],
        got[9 * PILLOW_WIDTH * PILLOW_HEIGHT * 3];
    dlc_image image = make_image(expected->number, pixels, tiled);
    dlc_transforms *list = listed("rand_augment(1)");
    dlc_transform_plan plan;
    dlc_transform_scratch scratch = {0};
    ck_assert_int_eq(dlc_transforms_plan(list, 3, 0, image.height, image.width, &plan),
                     DLC_OK);
    plan.step[0].choice[0] = expected->number;
    plan.step[0].amount[0] = expected->amount;
    ck_assert_int_eq(dlc_transforms_apply(list, &plan, &image, &scratch, DLC_U8, got),
                     DLC_OK);
    int64_t plane = image.height * image.width;
    for (int64_t y = 0; y < PILLOW_HEIGHT; y++)
        for (int64_t x = 0; x < PILLOW_WIDTH; x++)
            for (int64_t c = 0; c < 3; c++) {
                int value = got[c * plane + y * image.width + x];
                int wanted = expected->pixels[(y * PILLOW_WIDTH + x) * 3 + c];
                ck_assert_msg(abs(value - wanted) <= 1,
                              "change %d: %d and %d at %d, %d, channel %d",
                              expected->number, value, wanted, (int)y, (int)x, (int)c);
            }
    dlc_transform_scratch_free(&scratch);
    dlc_transforms_free(list);
}

/* Every change is drawn as often, with the magnitude of the table and either sign. */
TEST(rand_augment_draws) {
    dlc_transforms *list = listed("rand_augment(3, magnitude=15)");
    int drawn[14] = {0}, minus = 0;
    for (uint64_t position = 0; position < 4000; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(dlc_transforms_plan(list, 3, position, 9, 9, &plan), DLC_OK);
        for (int i = 0; i < 3; i++) {
            int64_t number = plan.step[0].choice[i];
            drawn[number]++;
            minus += number == 5 && plan.step[0].amount[i] < 0;
            if (number == 5)
                ck_assert_double_eq_tol(fabs(plan.step[0].amount[i]), 15, 1e-9);
            if (number == 11)
                ck_assert_double_eq_tol(plan.step[0].amount[i], 127.5, 1e-9);
        }
    }
    for (int i = 0; i < 14; i++)
        ck_assert_int_lt(abs(drawn[i] - 857), 150);
    ck_assert_int_lt(abs(minus - drawn[5] / 2), 80);
    dlc_transforms_free(list);
}

/* All kinds one after the other, on sizes down to one pixel: nothing is read outside.
 */
TEST(everything_at_once) {
    static uint8_t pixels[40 * 40 * 3], got[40 * 40 * 3];
    dlc_transforms *list = listed(
        "rand_augment(6, 30), mirror, rotate(90), color_jitter(1, 1, 1, 0.5), "
        "lighting(2), random_erasing(1, fill=noise), cutout(5), grayscale(0.5)");
    dlc_random random = dlc_random_make(8, 8);
    for (uint64_t position = 0; position < 150; position++) {
        int64_t height = 1 + (int64_t)dlc_random_below(&random, 40);
        int64_t width = 1 + (int64_t)dlc_random_below(&random, 40);
        dlc_image image = dlc_image_interleaved(pixels, position % 2 ? 3 : 1, height,
                                                width);
        for (size_t i = 0; i < sizeof pixels; i++)
            pixels[i] = (uint8_t)dlc_random_u32(&random);
        listed_apply(list, position, &image, DLC_U8, got);
    }
    dlc_transforms_free(list);
}
