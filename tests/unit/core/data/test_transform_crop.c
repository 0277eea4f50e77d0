/* Tests crops, mirror and normalize (core/data/transform_move.c, transform_apply.c)
 * against a simple reference, and what is drawn for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "data/transform.h"
#include "listed.h"
#include "support/test.h"

enum { MOST = 5 * 40 * 40 };

static int pick(dlc_random *random, int least, int most) {
    return least + (int)dlc_random_below(random, (uint64_t)(most - least + 1));
}

/* Sample `in` of planes, cropped to `out` as the plan says, mirrored and normalized. */
static void reference(const dlc_transforms *list, const dlc_transform_plan *plan,
                      const dlc_shape *in, const float *from, const dlc_shape *out,
                      float *to) {
    const dlc_rect *box = &plan->step[0].box;
    for (int64_t c = 0; c < out->dims[0]; c++)
        for (int64_t y = 0; y < out->dims[1]; y++)
            for (int64_t x = 0; x < out->dims[2]; x++) {
                int64_t at = plan->step[1].choice[0] ? out->dims[2] - 1 - x : x;
                int64_t row = y + box->y, column = at + box->x;
                float value = 0;
                if (row >= 0 && row < in->dims[1] && column >= 0 &&
                    column < in->dims[2])
                    value = from[(c * in->dims[1] + row) * in->dims[2] + column];
                *to++ = (value - dlc_transforms_mean(list, c)) *
                        dlc_transforms_scale(list, c);
            }
}

static void interleave(const dlc_shape *shape, const uint8_t *planes, uint8_t *to) {
    int64_t channels = shape->dims[0], plane = shape->dims[1] * shape->dims[2];
    for (int64_t i = 0; i < plane; i++)
        for (int64_t c = 0; c < channels; c++)
            to[i * channels + c] = planes[c * plane + i];
}

/* Random sizes, crops, channels and types; bytes that are normalized later give the
 * same. */
TEST_EACH(same_as_reference, 60) {
    dlc_random random = dlc_random_make(7, (uint64_t)_i);
    int channels = pick(&random, 1, 4), padding = pick(&random, 0, 3);
    dlc_shape in = {3, {channels, pick(&random, 1, 35), pick(&random, 1, 35)}}, out;
    char text[160];
    (void)snprintf(text, sizeof text,
                   "random_crop(height=%d, width=%d, padding=%d), mirror, "
                   "normalize(mean=%s, %s)",
                   pick(&random, 1, (int)in.dims[1] + 2 * padding),
                   pick(&random, 1, (int)in.dims[2] + 2 * padding), padding,
                   channels == 3 ? "(1.5, -20, 128)" : "7",
                   channels == 3 ? "std=(1, 3, 5)" : "scale=0.3");
    dlc_transforms *list = listed(text);
    ck_assert_int_eq(dlc_transforms_shape(list, &in, DLC_U8, &out), DLC_OK);

    uint8_t bytes[MOST], pixels[MOST], kept[MOST];
    float floats[MOST], got[MOST], expected[MOST];
    int64_t count = dlc_shape_count(&in), out_count = dlc_shape_count(&out);
    int64_t plane = out.dims[1] * out.dims[2];
    for (int64_t i = 0; i < count; i++)
        floats[i] = bytes[i] = (uint8_t)dlc_random_u32(&random);
    interleave(&in, bytes, pixels);
    dlc_image images[] = {
        dlc_image_planes(bytes, DLC_U8, &in), dlc_image_planes(floats, DLC_F32, &in),
        dlc_image_interleaved(pixels, channels, in.dims[1], in.dims[2])};
    for (uint64_t position = 0; position < 20; position++) {
        dlc_transform_plan plan;
        ck_assert_int_eq(
            dlc_transforms_plan(list, 3, position, in.dims[1], in.dims[2], &plan),
            DLC_OK);
        reference(list, &plan, &in, floats, &out, expected);
        for (int i = 0; i < 3; i++) {
            memset(got, 0, sizeof got);
            listed_apply(list, position, &images[i], DLC_F32, got);
            ck_assert_mem_eq(got, expected, (size_t)out_count * sizeof *got);
            if (images[i].type == DLC_F32)
                continue;
            memset(kept, 77, sizeof kept);
            listed_apply(list, position, &images[i], DLC_U8, kept);
            for (int64_t v = 0; v < out_count; v++)
                got[v] = ((float)kept[v] - dlc_transforms_mean(list, v / plane)) *
                         dlc_transforms_scale(list, v / plane);
            ck_assert_mem_eq(got, expected, (size_t)out_count * sizeof *got);
            ck_assert_uint_eq(kept[out_count], 77);
        }
    }
    dlc_transforms_free(list);
}

TEST(draws) {
    int tops[4] = {0}, lefts[5] = {0}, mirrored = 0, seldom = 0, together = 0;
    dlc_transforms *list = listed("random_crop(4, padding=1), mirror, mirror(0.1)");
    for (uint64_t position = 0; position < 4000; position++) {
        dlc_transform_plan plan, again;
        memset(&plan, 0, sizeof plan);
        memset(&again, 0, sizeof again);
        ck_assert_int_eq(dlc_transforms_plan(list, 9, position, 5, 6, &plan), DLC_OK);
        ck_assert_int_eq(dlc_transforms_plan(list, 9, position, 5, 6, &again), DLC_OK);
        ck_assert_mem_eq(&plan, &again, sizeof plan);
        int64_t top = plan.step[0].box.y + 1, left = plan.step[0].box.x + 1;
        ck_assert(top >= 0 && top <= 3 && left >= 0 && left <= 4);
        tops[top]++;
        lefts[left]++;
        mirrored += (int)plan.step[1].choice[0];
        seldom += (int)plan.step[2].choice[0];
        together += plan.step[1].choice[0] && plan.step[2].choice[0];
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_lt(abs(tops[i] - 1000), 150);
    for (int i = 0; i < 5; i++)
        ck_assert_int_lt(abs(lefts[i] - 800), 150);
    ck_assert_int_lt(abs(mirrored - 2000), 200);
    ck_assert_int_lt(abs(seldom - 400), 100);
    ck_assert_int_lt(abs(together - 200), 70); /* the two do not depend on each other */
    dlc_transforms_free(list);
}

TEST(seed_and_position_matter) {
    dlc_transforms *list = listed("random_crop(2)");
    int other_seed = 0, other_position = 0;
    for (uint64_t position = 0; position < 100; position++) {
        dlc_transform_plan plan, seed, next;
        ck_assert_int_eq(dlc_transforms_plan(list, 1, position, 99, 99, &plan), DLC_OK);
        ck_assert_int_eq(dlc_transforms_plan(list, 2, position, 99, 99, &seed), DLC_OK);
        ck_assert_int_eq(dlc_transforms_plan(list, 1, position + 1, 99, 99, &next),
                         DLC_OK);
        other_seed += plan.step[0].box.x != seed.step[0].box.x;
        other_position += plan.step[0].box.x != next.step[0].box.x;
    }
    ck_assert_int_gt(other_seed, 90);
    ck_assert_int_gt(other_position, 90);
    dlc_transforms_free(list);
}

/* Where no pixel is in the middle, torchvision's choice. */
TEST(center) {
    static const struct {
        int side, height, width, top, left;
    } cases[] = {{24, 32, 28, 4, 2}, {25, 32, 32, 4, 4}, {25, 30, 26, 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        dlc_transform_plan plan;
        (void)snprintf(text, sizeof text, "center_crop(%d)", cases[i].side);
        dlc_transforms *list = listed(text);
        ck_assert_int_eq(
            dlc_transforms_plan(list, 1, i, cases[i].height, cases[i].width, &plan),
            DLC_OK);
        ck_assert_int_eq(plan.region.y, cases[i].top);
        ck_assert_int_eq(plan.region.x, cases[i].left);
        dlc_transforms_free(list);
    }
}

/* A crop that shows nothing but the border reads one pixel, and is black. */
TEST(border_alone) {
    dlc_transforms *list = listed("random_crop(2, padding=9)");
    uint8_t pixels[3] = {50, 60, 70}, got[12];
    dlc_image image = dlc_image_interleaved(pixels, 3, 1, 1);
    int black = 0;
    for (uint64_t position = 0; position < 50; position++) {
        int sum = 0;
        listed_apply(list, position, &image, DLC_U8, got);
        for (int i = 0; i < 12; i++)
            sum += got[i];
        ck_assert(sum == 0 || sum == 180);
        black += sum == 0;
    }
    ck_assert_int_gt(black, 30);
    dlc_transforms_free(list);
}
