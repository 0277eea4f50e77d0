/* Tests boxes around objects that follow their image (core/data/transform_apply.c):
 * against coordinates that were computed by hand, and against masks that the same
 * transforms move. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/data.h>

#include "base/random.h"
#include "base/status.h"
#include "data/transform.h"
#include "listed.h"
#include "support/test.h"

enum { HEIGHT = 6, WIDTH = 8, MOST = 8 };

typedef struct box {
    float label, x0, y0, x1, y1;
} box;
_Static_assert(sizeof(box) == DLC_BOX_VALUES * sizeof(float), "a row is a box");

static void planned(const dlc_transforms *list, uint64_t position, int64_t height,
                    int64_t width, dlc_transform_plan *plan) {
    dlc_status status = dlc_transforms_plan(list, 3, position, height, width, plan);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static int64_t apply(const dlc_transforms *list, const dlc_transform_plan *plan,
                     double min_visibility, const box *in, int64_t count, box *out) {
    return dlc_transforms_apply_boxes(list, plan, min_visibility, &in->label, count,
                                      &out->label);
}

static void check_box(const box *got, const box *expected) {
    ck_assert_float_eq(got->label, expected->label);
    ck_assert_float_eq_tol(got->x0, expected->x0, 1e-4f);
    ck_assert_float_eq_tol(got->y0, expected->y0, 1e-4f);
    ck_assert_float_eq_tol(got->x1, expected->x1, 1e-4f);
    ck_assert_float_eq_tol(got->y1, expected->y1, 1e-4f);
}

/* ---- By hand ----------------------------------------------------------------- */

enum { SHEAR_X = 1, SHEAR_Y, SHIFT_X, SHIFT_Y, TURN }; /* of rand_augment */

/* Of an image of 6 x 8. The plan has the numbers below instead of random ones. */
static const struct {
    const char *text;
    dlc_rect box; /* x, y, width, height */
    int64_t choice[2];
    double amount[2];
    box in, out; /* label -1: nothing is left of it */
} cases[] = {
    {"resize(height=9, width=12)",
     {0, 0, 8, 6},
     {0},
     {0},
     {3, 2, 1, 6, 4},
     {3, 3, 1.5f, 9, 6}},
    {"resize(3)", {0, 0, 8, 6}, {0}, {0}, {0, 2, 1, 6, 5}, {0, 1, 0.5f, 3, 2.5f}},
    {"center_crop(4)", {2, 1, 4, 4}, {0}, {0}, {1, 1, 0, 5, 4}, {1, 0, 0, 3, 3}},
    {"center_crop(4)", {2, 1, 4, 4}, {0}, {0}, {1, 0, 0, 2, 6}, {-1, 0, 0, 0, 0}},
    {"random_crop(5, padding=2)",
     {-2, 1, 5, 5},
     {0},
     {0},
     {1, 1, 2, 4, 6},
     {1, 3, 1, 5, 5}},
    {"random_resized_crop(8)",
     {2, 1, 4, 2},
     {0},
     {0},
     {2, 3, 1, 5, 2},
     {2, 2, 0, 6, 4}},
    {"random_resized_crop(8)",
     {2, 1, 4, 2},
     {0},
     {0},
     {2, 0, 0, 8, 6},
     {2, 0, 0, 8, 8}},
    {"mirror", {0}, {1}, {0}, {1, 1, 0, 3, 4}, {1, 5, 0, 7, 4}},
    {"mirror", {0}, {0}, {0}, {1, 1, 0, 3, 4}, {1, 1, 0, 3, 4}},
    /* Counterclockwise about the center, (4, 3): what is right of it goes up. */
    {"rotate(90)", {0}, {0}, {90}, {1, 5, 1, 7, 2}, {1, 2, 0, 3, 2}},
    {"rotate(90)", {0}, {0}, {-90}, {1, 5, 1, 7, 2}, {1, 5, 4, 6, 6}},
    {"rotate(90)",
     {0},
     {0},
     {45},
     {1, 3, 2, 5, 4},
     {1, 4 - 1.41421356f, 3 - 1.41421356f, 4 + 1.41421356f, 3 + 1.41421356f}},
    {"rotate(90)", {0}, {0}, {90}, {1, 0, 0, 1, 6}, {1, 1, 6, 7, 6}},
    {"rand_augment(1)", {0}, {SHIFT_X}, {0.25}, {1, 1, 1, 3, 3}, {1, 3, 1, 5, 3}},
    {"rand_augment(1)", {0}, {SHIFT_Y}, {-0.34}, {1, 1, 1, 3, 5}, {1, 1, 0, 3, 3}},
    /* x moves by -y / 2, and y by -x / 2. */
    {"rand_augment(1)", {0}, {SHEAR_X}, {0.5}, {1, 4, 2, 6, 4}, {1, 2, 2, 5, 4}},
    {"rand_augment(1)", {0}, {SHEAR_Y}, {0.5}, {1, 2, 3, 4, 5}, {1, 2, 1, 4, 4}},
    {"rand_augment(2)",
     {0},
     {SHIFT_X, TURN},
     {0.25, 90},
     {1, 3, 1, 5, 2},
     {1, 2, 0, 3, 2}},
    /* What one of several moves out of the image does not come back. */
    {"rand_augment(2)",
     {0},
     {SHIFT_X, SHIFT_X},
     {0.5, -0.5},
     {1, 2, 1, 6, 3},
     {1, 2, 1, 4, 3}},
    {"rand_augment(2)",
     {0},
     {SHIFT_X, SHIFT_X},
     {0.5, -0.5},
     {1, 5, 1, 7, 3},
     {-1, 0, 0, 0, 0}},
    {"rand_augment(2)", {0}, {6, 13}, {0.5, 0}, {1, 5, 1, 7, 3}, {1, 5, 1, 7, 3}},
    {"random_erasing(1)", {1, 1, 6, 4}, {0}, {0}, {1, 2, 1, 7, 3}, {1, 2, 1, 7, 3}},
    {"cutout(8)", {0, 0, 8, 8}, {0}, {0}, {1, 2, 1, 7, 3}, {1, 2, 1, 7, 3}},
    {"grayscale", {0}, {1}, {0}, {1, 2, 1, 7, 3}, {1, 2, 1, 7, 3}},
};
enum { CASES = sizeof cases / sizeof *cases };

TEST_EACH(by_hand, CASES) {
    dlc_transforms *list = listed(cases[_i].text);
    dlc_transform_plan plan;
    box out = {0};
    planned(list, 0, HEIGHT, WIDTH, &plan);
    plan.step[0].box = cases[_i].box;
    for (int k = 0; k < 2; k++) {
        plan.step[0].choice[k] = cases[_i].choice[k];
        plan.step[0].amount[k] = cases[_i].amount[k];
    }
    int is_empty = cases[_i].out.x0 == cases[_i].out.x1 ||
                   cases[_i].out.y0 == cases[_i].out.y1;
    ck_assert_int_eq(apply(list, &plan, 0, &cases[_i].in, 1, &out), !is_empty);
    if (!is_empty)
        check_box(&out, &cases[_i].out);
    dlc_transforms_free(list);
}

/* One after the other: crop (2, 1), mirror about 2, twice as large. */
TEST(a_list) {
    dlc_transforms *list = listed(
        "center_crop(4), mirror(1), color_jitter(0.5), resize(8), cutout(3), normalize(1)");
    const box in[] = {{0, 2, 1, 3, 2}, {1, 0, 0, 8, 6}, {2, 5, 3, 8, 6}};
    const box expected[] = {{0, 6, 0, 8, 2}, {1, 0, 0, 8, 8}, {2, 0, 4, 2, 8}};
    dlc_transform_plan plan;
    box out[3];
    planned(list, 0, HEIGHT, WIDTH, &plan);
    ck_assert_int_eq(apply(list, &plan, 0, in, 3, out), 3);
    for (int i = 0; i < 3; i++)
        check_box(&out[i], &expected[i]);
    dlc_transforms_free(list);
}

/* ---- What is left out -------------------------------------------------------- */

/* The crop is x 2 to 6, y 1 to 5. Rows that are not used, and boxes of which too little
 * is left, make room for the next ones. */
TEST(left_out) {
    static const box in[] = {
        {0, 0, 1, 4, 5},        /* a half */
        {-1, 3, 3, 4, 4},       /* not used */
        {1, 0, 1, 8, 5},        /* a half */
        {2, 5, 0, 8, 2},        /* a sixth, 1 x 1 */
        {3, 0, 0, 2, 6},        /* nothing; it ends where the crop begins */
        {4, 5.25f, 1, 6, 5},    /* all, but 0.75 wide */
        {5, 2, 4.25f, 6, 4.9f}, /* all, but 0.65 high */
        {6, 3, 2, 5, 4},        /* all */
    };
    static const struct {
        double min_visibility;
        int kept;
        float label[5];
    } wanted[] = {{0, 4, {0, 1, 2, 6}}, {0.16, 4, {0, 1, 2, 6}}, {0.17, 3, {0, 1, 6}},
                  {0.5, 3, {0, 1, 6}},  {0.51, 1, {6}},          {1, 1, {6}}};
    dlc_transforms *list = listed("center_crop(4)");
    dlc_transform_plan plan;
    planned(list, 0, HEIGHT, WIDTH, &plan);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        box out[MOST];
        int64_t kept = apply(list, &plan, wanted[i].min_visibility, in, 8, out);
        ck_assert_int_eq(kept, wanted[i].kept);
        for (int64_t k = 0; k < kept; k++)
            ck_assert_float_eq(out[k].label, wanted[i].label[k]);
    }
    dlc_transforms_free(list);
}

/* The share is that of the box as it was stored, over all transforms: three quarters of
 * two thirds. */
TEST(share_of_the_whole) {
    dlc_transforms *list = listed("center_crop(height=6, width=6), "
                                  "resize(12), center_crop(height=12, width=8)");
    dlc_transform_plan plan;
    const box in = {0, 0, 0, 4, 3};
    box out;
    planned(list, 0, HEIGHT, WIDTH, &plan);
    ck_assert_int_eq(apply(list, &plan, 0.5, &in, 1, &out), 1);
    check_box(&out, &(box){0, 0, 0, 4, 6});
    ck_assert_int_eq(apply(list, &plan, 0.51, &in, 1, &out), 0);
    dlc_transforms_free(list);
}

/* ---- Masks ------------------------------------------------------------------- */

enum { ROWS = 41, COLUMNS = 53, SIDE_MOST = 120, POSITIONS = 300 };

/* A box with corners between pixels, and the mask that it covers. */
static box paint(dlc_random *random, uint8_t *mask) {
    int64_t x0 = (int64_t)dlc_random_below(random, COLUMNS - 4);
    int64_t y0 = (int64_t)dlc_random_below(random, ROWS - 4);
    int64_t x1 = x0 + 3 +
                 (int64_t)dlc_random_below(random, (uint64_t)(COLUMNS - x0 - 3));
    int64_t y1 = y0 + 3 + (int64_t)dlc_random_below(random, (uint64_t)(ROWS - y0 - 3));
    for (int64_t y = 0; y < ROWS; y++)
        for (int64_t x = 0; x < COLUMNS; x++)
            mask[y * COLUMNS + x] = x >= x0 && x < x1 && y >= y0 && y < y1;
    return (box){0, (float)x0, (float)y0, (float)x1, (float)y1};
}

/* The box around the pixels of a mask; 0: there are none. */
static int extent(const int32_t *mask, const dlc_shape *shape, box *found) {
    *found = (box){0, INFINITY, INFINITY, -INFINITY, -INFINITY};
    for (int64_t i = 0; i < dlc_shape_count(shape); i++) {
        float x = (float)(i % shape->dims[2]), y = (float)(i / shape->dims[2]);
        if (!mask[i])
            continue;
        found->x0 = fminf(found->x0, x);
        found->y0 = fminf(found->y0, y);
        found->x1 = fmaxf(found->x1, x + 1);
        found->y1 = fmaxf(found->y1, y + 1);
    }
    return found->x1 > found->x0;
}

static int touches_edge(const box *at, const dlc_shape *shape) {
    return at->x0 == 0 || at->y0 == 0 || at->x1 == (float)shape->dims[2] ||
           at->y1 == (float)shape->dims[1];
}

/* How far the mask is from filling the box, or (`inside`) from being inside of it. */
static float distance(const box *mask, const box *at, int inside) {
    float out = fmaxf(fmaxf(at->x0 - mask->x0, at->y0 - mask->y0),
                      fmaxf(mask->x1 - at->x1, mask->y1 - at->y1));
    float in = fmaxf(fmaxf(mask->x0 - at->x0, mask->y0 - at->y0),
                     fmaxf(at->x1 - mask->x1, at->y1 - mask->y1));
    return inside ? out : fmaxf(out, in);
}

/* `is_exact`: no corner is turned and then cut off, so that the mask fills the box. */
static const struct {
    const char *text;
    int is_exact;
    float most; /* pixels, between the box and that around the mask */
} followed[] = {
    {"resize(height=31, width=70)", 1, 0.51f},
    {"resize(57, interpolation=nearest)", 1, 0.51f},
    {"center_crop(29)", 1, 0},
    {"random_crop(40, padding=7)", 1, 0},
    {"random_resized_crop(37)", 1, 0.51f},
    {"mirror", 1, 0},
    {"mirror, random_crop(30), resize(19), mirror(1)", 1, 0.51f},
    {"random_resized_crop(90), mirror, random_crop(70), random_erasing(1)", 1, 0.51f},
    {"rotate(40)", 1, 1},
    {"rand_augment(1, 25)", 1, 1},
    {"rand_augment(4, 25), rotate(30), random_resized_crop(60), mirror", 0, 1.5f},
};
enum { FOLLOWED = sizeof followed / sizeof *followed };

TEST_EACH(as_masks, FOLLOWED) {
    static uint8_t mask[ROWS * COLUMNS];
    static int32_t moved[SIDE_MOST * SIDE_MOST];
    dlc_transforms *list = listed(followed[_i].text);
    dlc_transform_scratch scratch = {0};
    dlc_random random = dlc_random_make(5, (uint64_t)_i);
    const dlc_shape in = {3, {1, ROWS, COLUMNS}};
    const dlc_image image = dlc_image_planes(mask, DLC_U8, &in);
    dlc_shape out;
    int compared = 0;
    ck_assert_int_eq(dlc_transforms_mask_shape(list, &in, &out), DLC_OK);
    for (uint64_t position = 0; position < POSITIONS; position++) {
        dlc_transform_plan plan;
        box at = paint(&random, mask), got, seen;
        planned(list, position, ROWS, COLUMNS, &plan);
        ck_assert_int_eq(
            dlc_transforms_apply_mask(list, &plan, &image, &scratch, moved), DLC_OK);
        int is_seen = extent(moved, &out, &seen);
        if (apply(list, &plan, 0, &at, 1, &got)) {
            int inside = !followed[_i].is_exact ||
                         (followed[_i].most == 1 && touches_edge(&got, &out));
            ck_assert(is_seen || inside);
            if (is_seen)
                ck_assert_float_le(distance(&seen, &got, inside), followed[_i].most);
            compared += is_seen && !inside;
        } else if (is_seen) { /* less than a pixel of it is left */
            ck_assert(seen.x1 - seen.x0 <= 1 || seen.y1 - seen.y0 <= 1);
        }
    }
    ck_assert_int_ge(compared, followed[_i].is_exact ? POSITIONS / 3 : 0);
    dlc_transform_scratch_free(&scratch);
    dlc_transforms_free(list);
}
