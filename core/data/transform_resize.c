/* Resizing: which part of an image becomes which size. The arithmetic is in resample.c.
 */
#include <math.h>

#include "base/status.h"
#include "data/transform_kinds.h"

enum { SIZE, HEIGHT, WIDTH, INTERPOLATION, AREA, RATIO };

#define INTERPOLATION_OPTION \
    DLC_CHOICE("interpolation", "bilinear", "bilinear|bicubic|area|nearest", \
               "how pixels are resampled; all but nearest are antialiased")
enum { TRIES = 10 };

static const dlc_filter *filter_of(const dlc_transform_step *step) {
    return dlc_filter_find(step->value[INTERPOLATION].s);
}

static void set_size(const dlc_transform_step *step, int64_t *height, int64_t *width) {
    int64_t side = step->value[SIZE].i;
    *height = side ? side : step->value[HEIGHT].i;
    *width = side ? side : step->value[WIDTH].i;
}

/* ---- resize ------------------------------------------------------------------ */

/* The longer side is rounded down, as in torchvision. */
static dlc_status resize_size(const dlc_transform_step *step, int64_t *height,
                              int64_t *width) {
    int64_t side = step->value[SIZE].i, from_height = *height, from_width = *width;
    if (!side) {
        set_size(step, height, width);
        return DLC_OK;
    }
    if (!from_height || !from_width) { /* not known yet */
        *height = *width = 0;
        return DLC_OK;
    }
    int is_wide = from_width > from_height;
    int64_t shorter = is_wide ? from_height : from_width;
    *height = is_wide ? side : side * from_height / shorter;
    *width = is_wide ? side * from_width / shorter : side;
    return DLC_OK;
}

static void resize_draw(const dlc_transform_step *step, dlc_random *random,
                        dlc_step_plan *plan) {
    (void)step;
    (void)random;
    plan->box = (dlc_rect){0, 0, plan->in_width, plan->in_height};
}

/* ---- random_resized_crop ----------------------------------------------------- */

static dlc_status random_resized_crop_check(const dlc_transform_step *step) {
    DLC_TRY(dlc_crop_check(step));
    DLC_TRY(dlc_bounds_check(step, AREA));
    return dlc_bounds_check(step, RATIO);
}

static dlc_status random_resized_crop_size(const dlc_transform_step *step,
                                           int64_t *height, int64_t *width) {
    set_size(step, height, width);
    return DLC_OK;
}

/* The whole image, or the largest part of its middle whose ratio is allowed. */
static dlc_rect largest_middle(const dlc_step_plan *plan, const double *ratio) {
    double width = (double)plan->in_width, height = (double)plan->in_height;
    double is = width / height;
    if (is < ratio[0])
        height = fmax(1, rint(width / ratio[0]));
    else if (is > ratio[1])
        width = fmax(1, rint(height * ratio[1]));
    dlc_rect box = {.width = (int64_t)width, .height = (int64_t)height};
    box.x = (plan->in_width - box.width) / 2;
    box.y = (plan->in_height - box.height) / 2;
    return box;
}

/* As torchvision: a random area and ratio, until they fit into the image. */
static void random_resized_crop_draw(const dlc_transform_step *step, dlc_random *random,
                                     dlc_step_plan *plan) {
    const double *scale = step->value[AREA].list.memory;
    const double *ratio = step->value[RATIO].list.memory;
    double height, width;
    for (int i = 0; i < TRIES; i++) {
        dlc_draw_sides(random, plan, scale, ratio, &width, &height);
        if (width < 1 || height < 1 || width > (double)plan->in_width ||
            height > (double)plan->in_height)
            continue;
        plan->box = dlc_draw_place(random, plan, height, width);
        return;
    }
    plan->box = largest_middle(plan, ratio);
}

/* ---- Resampling -------------------------------------------------------------- */

/* The pixels begin .. *end - 1 of a box of `length` pixels that become the pixels first
 * .. first + count - 1 of `size`. */
static int64_t first_read(const dlc_filter *filter, int64_t length, int64_t size,
                          int64_t first, int64_t count, int64_t *end) {
    double scale = (double)length / (double)size;
    double support = filter->support * fmax(1, scale) + 1;
    int64_t begin = (int64_t)floor((double)first * scale - support);
    *end = (int64_t)ceil((double)(first + count) * scale + support);
    *end = *end < length ? *end : length;
    return begin > 0 ? begin : 0;
}

static dlc_rect resize_reads(const dlc_transform_step *step,
                             const dlc_step_plan *plan) {
    const dlc_filter *filter = filter_of(step);
    const dlc_rect *need = &plan->need, *box = &plan->box;
    int64_t right, bottom;
    int64_t left = first_read(filter, box->width, plan->out_width, need->x, need->width,
                              &right);
    int64_t top = first_read(filter, box->height, plan->out_height, need->y,
                             need->height, &bottom);
    return (dlc_rect){box->x + left, box->y + top, right - left, bottom - top};
}

static int is_unchanged(const dlc_image *image, const dlc_step_plan *plan) {
    return image->scale == 1 && image->x == 0 && image->y == 0 &&
           plan->box.width == plan->out_width && plan->box.height == plan->out_height &&
           plan->need.width == image->width && plan->need.height == image->height &&
           plan->box.width == image->width && plan->box.height == image->height;
}

static dlc_status resize_apply(const dlc_transform_step *step,
                               const dlc_step_plan *plan, dlc_transform_work *work) {
    const dlc_filter *filter = work->is_mask ? dlc_filter_find("nearest")
                                             : filter_of(step);
    const dlc_rect *need = &plan->need, *box = &plan->box;
    if (is_unchanged(&work->image, plan))
        return DLC_OK;
    DLC_TRY(dlc_work_interleave(work));
    const dlc_image *from = &work->image;
    dlc_resample_axis x = {.begin = (double)box->x * from->scale - from->x,
                           .size = plan->out_width,
                           .first = need->x,
                           .count = need->width};
    dlc_resample_axis y = {.begin = (double)box->y * from->scale - from->y,
                           .size = plan->out_height,
                           .first = need->y,
                           .count = need->height};
    x.end = x.begin + (double)box->width * from->scale;
    y.end = y.begin + (double)box->height * from->scale;
    void *memory = dlc_work_memory(work, dlc_resample_bytes(filter, from, &x, &y));
    dlc_image made;
    if (!memory)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_work_make(work, need->height, need->width, 0, &made));
    dlc_resample(filter, from, &x, &y, memory, &made);
    made.x = (double)need->x;
    made.y = (double)need->y;
    dlc_work_take(work, &made);
    return DLC_OK;
}

static const dlc_option resize_options[] = {
    DLC_TRANSFORM_SIDES(
        "the shorter side; the other keeps the aspect ratio; two numbers without a "
        "name are height and width"),
    INTERPOLATION_OPTION,
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_resize = {
    .name = "resize",
    .help = "resize the image",
    .options = resize_options,
    .flags = DLC_TRANSFORM_SIZED | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_RESAMPLE,
    .check = dlc_crop_check,
    .size = resize_size,
    .draw = resize_draw,
    .reads = resize_reads,
    .apply = resize_apply,
    .maps = dlc_crop_maps,
};

static const dlc_option random_resized_crop_options[] = {
    DLC_TRANSFORM_SIDES(
        "side of the square; two numbers without a name are height and width"),
    INTERPOLATION_OPTION,
    DLC_FLOATS("scale", "0.08, 1", 0, 1, "least and largest share of the image's area"),
    DLC_FLOATS("ratio", "0.75, 1.3333333333333333", 1e-3, 1e3,
               "least and largest width / height"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_random_resized_crop = {
    .name = "random_resized_crop",
    .help = "resize a part of the image, of random area, aspect ratio and position",
    .options = random_resized_crop_options,
    .flags = DLC_TRANSFORM_SIZED | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_RESAMPLE,
    .check = random_resized_crop_check,
    .size = random_resized_crop_size,
    .draw = random_resized_crop_draw,
    .reads = resize_reads,
    .apply = resize_apply,
    .maps = dlc_crop_maps,
};
