/* Transforms that erase a rectangle: random_erasing (Zhong et al., 2017) and cutout
 * (DeVries and Taylor, 2017). The rectangle gets a neutral fill
 * value: the mean, zeros before `normalize`, or noise with mean and deviation of
 * `normalize`.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/transform_kinds.h"

/* The random stream of noise ("eras"); its seed is drawn. */
#define STREAM_NOISE UINT64_C(0x6572617300000000)

enum { TRIES = 10 };

/* ---- Erasing ----------------------------------------------------------------- */

static uint8_t byte_near(double value) {
    return (uint8_t)fmin(255, fmax(0, rint(value)));
}

static void erase_mean(const dlc_transform_work *work, const dlc_rect *box) {
    const dlc_image *image = &work->image;
    for (int64_t c = 0; c < image->channels; c++) {
        uint8_t value = byte_near((double)dlc_transforms_mean(work->list, c));
        for (int64_t row = 0; row < box->height; row++) {
            uint8_t *at = dlc_image_at(image, box->y + row, box->x);
            for (int64_t i = 0; i < box->width; i++)
                at[i * image->column + c] = value;
        }
    }
}

static void erase_zero(const dlc_transform_work *work, const dlc_rect *box) {
    for (int64_t row = 0; row < box->height; row++)
        memset(dlc_image_at(&work->image, box->y + row, box->x), 0,
               (size_t)(box->width * work->image.column));
}

static void erase_noise(const dlc_transform_work *work, const dlc_rect *box,
                        uint64_t seed) {
    const dlc_image *image = &work->image;
    dlc_random random = dlc_random_make(seed, STREAM_NOISE);
    for (int64_t row = 0; row < box->height; row++) {
        uint8_t *at = dlc_image_at(image, box->y + row, box->x);
        for (int64_t i = 0; i < box->width * image->channels; i++) {
            int64_t c = i % image->channels;
            double deviation = 1 / (double)dlc_transforms_scale(work->list, c);
            at[i] = byte_near((double)dlc_transforms_mean(work->list, c) +
                              deviation * (double)dlc_random_normal(&random));
        }
    }
}

/* Erases `box` of the whole image, as far as it is in this part. */
static dlc_status erase_box(const dlc_step_plan *plan, const char *fill,
                            dlc_transform_work *work) {
    dlc_rect box = plan->box;
    const dlc_image *image = &work->image;
    if (!box.width || !box.height)
        return DLC_OK;
    DLC_TRY(dlc_work_own(work));
    int64_t right = box.x + box.width - (int64_t)image->x;
    int64_t bottom = box.y + box.height - (int64_t)image->y;
    box.x = box.x > (int64_t)image->x ? box.x - (int64_t)image->x : 0;
    box.y = box.y > (int64_t)image->y ? box.y - (int64_t)image->y : 0;
    box.width = (right < image->width ? right : image->width) - box.x;
    box.height = (bottom < image->height ? bottom : image->height) - box.y;
    if (box.width <= 0 || box.height <= 0)
        return DLC_OK;
    if (strcmp(fill, "noise") == 0)
        erase_noise(work, &box, (uint64_t)plan->choice[0]);
    else if (strcmp(fill, "zero") == 0)
        erase_zero(work, &box);
    else
        erase_mean(work, &box);
    return DLC_OK;
}

static int64_t draw_seed(dlc_random *random) {
    uint64_t high = dlc_random_u32(random);
    return (int64_t)(high << 32 | dlc_random_u32(random));
}

#define FILL_OPTION \
    DLC_CHOICE( \
        "fill", "mean", "mean|zero|noise", \
        "what is put there: the mean of `normalize`, zeros before `normalize`, " \
        "or noise with the mean and std of `normalize`")

/* ---- random_erasing ---------------------------------------------------------- */

enum { ERASE_P, ERASE_SCALE, ERASE_RATIO, ERASE_FILL };

static dlc_status random_erasing_check(const dlc_transform_step *step) {
    DLC_TRY(dlc_bounds_check(step, ERASE_SCALE));
    return dlc_bounds_check(step, ERASE_RATIO);
}

/* As torchvision: a random area and ratio, until they fit; nothing if none does. */
static void random_erasing_draw(const dlc_transform_step *step, dlc_random *random,
                                dlc_step_plan *plan) {
    const double *scale = step->value[ERASE_SCALE].list.memory;
    const double *ratio = step->value[ERASE_RATIO].list.memory;
    double height, width;
    plan->choice[0] = draw_seed(random);
    if ((double)dlc_random_uniform(random) >= step->value[ERASE_P].f)
        return;
    for (int i = 0; i < TRIES; i++) {
        dlc_draw_sides(random, plan, scale, ratio, &height, &width);
        if (height >= (double)plan->in_height || width >= (double)plan->in_width)
            continue;
        plan->box = dlc_draw_place(random, plan, height, width);
        return;
    }
}

static dlc_status random_erasing_apply(const dlc_transform_step *step,
                                       const dlc_step_plan *plan,
                                       dlc_transform_work *work) {
    return erase_box(plan, step->value[ERASE_FILL].s, work);
}

static const dlc_option random_erasing_options[] = {
    DLC_FLOAT("p", "0.5", 0, 1, "probability"),
    DLC_FLOATS("scale", "0.02, 0.33", 0, 1,
               "least and largest share of the image's area"),
    DLC_FLOATS("ratio", "0.3, 3.3", 1e-3, 1e3, "least and largest height / width"),
    FILL_OPTION,
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_random_erasing = {
    .name = "random_erasing",
    .help = "erase a rectangle of random area, aspect ratio and position",
    .options = random_erasing_options,
    .check = random_erasing_check,
    .draw = random_erasing_draw,
    .apply = random_erasing_apply,
};

/* ---- cutout ------------------------------------------------------------------ */

enum { CUTOUT_SIZE, CUTOUT_P, CUTOUT_FILL };

/* The center of the square is any pixel, so the square may exceed the image. */
static void cutout_draw(const dlc_transform_step *step, dlc_random *random,
                        dlc_step_plan *plan) {
    int64_t side = step->value[CUTOUT_SIZE].i;
    plan->choice[0] = draw_seed(random);
    if ((double)dlc_random_uniform(random) >= step->value[CUTOUT_P].f)
        return;
    int64_t y = (int64_t)dlc_random_below(random, (uint64_t)plan->in_height);
    int64_t x = (int64_t)dlc_random_below(random, (uint64_t)plan->in_width);
    plan->box = (dlc_rect){x - side / 2, y - side / 2, side, side};
}

static dlc_status cutout_apply(const dlc_transform_step *step,
                               const dlc_step_plan *plan, dlc_transform_work *work) {
    return erase_box(plan, step->value[CUTOUT_FILL].s, work);
}

static const dlc_option cutout_options[] = {
    DLC_INT_REQUIRED("size", 1, DLC_TRANSFORM_SIDE_MAX, "side of the square"),
    DLC_FLOAT("p", "1", 0, 1, "probability"),
    FILL_OPTION,
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_cutout = {
    .name = "cutout",
    .help = "erase a square around a random pixel",
    .options = cutout_options,
    .draw = cutout_draw,
    .apply = cutout_apply,
};
