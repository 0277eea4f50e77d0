/* Crops and mirror: a crop is another view of the same pixels, unless it shows a
 * border, and mirroring walks the columns backwards. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "data/transform_kinds.h"

enum { SIZE, HEIGHT, WIDTH, PADDING };
enum { PROBABILITY };

/* ---- Sizes ------------------------------------------------------------------- */

dlc_status dlc_crop_check(const dlc_transform_step *step) {
    int square = !!step->value[SIZE].i;
    int height = !!step->value[HEIGHT].i, width = !!step->value[WIDTH].i;
    if (square != height && square != width)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "needs a size, or height and width, as in %s(224) or "
                    "%s(height=224, width=320)",
                    step->kind->name, step->kind->name);
}

static dlc_status crop_from(const dlc_transform_step *step, int64_t border,
                            int64_t *height, int64_t *width) {
    int64_t side = step->value[SIZE].i;
    int64_t rows = side ? side : step->value[HEIGHT].i;
    int64_t columns = side ? side : step->value[WIDTH].i;
    if ((*height && *height + border < rows) || (*width && *width + border < columns))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "cuts out %lld x %lld, but the image is only %lld x %lld%s: "
            "crop less, or resize first",
            (long long)rows, (long long)columns, (long long)*height + (long long)border,
            (long long)*width + (long long)border, border ? " with its padding" : "");
    *height = rows;
    *width = columns;
    return DLC_OK;
}

dlc_status dlc_crop_size(const dlc_transform_step *step, int64_t *height,
                         int64_t *width) {
    return crop_from(step, 0, height, width);
}

dlc_status dlc_random_crop_size(const dlc_transform_step *step, int64_t *height,
                                int64_t *width) {
    return crop_from(step, 2 * step->value[PADDING].i, height, width);
}

/* ---- Crops ------------------------------------------------------------------- */

/* Half of the difference, to the even number if it lies between two, as torchvision's
 * center_crop does. */
static int64_t half(int64_t difference) {
    return (int64_t)rint((double)difference / 2);
}

void dlc_center_crop_draw(const dlc_transform_step *step, dlc_random *random,
                          dlc_step_plan *plan) {
    (void)step;
    (void)random;
    plan->box = (dlc_rect){half(plan->in_width - plan->out_width),
                           half(plan->in_height - plan->out_height), plan->out_width,
                           plan->out_height};
}

static int64_t draw_offset(dlc_random *random, int64_t whole, int64_t part) {
    return (int64_t)dlc_random_below(random, (uint64_t)(whole - part + 1));
}

void dlc_random_crop_draw(const dlc_transform_step *step, dlc_random *random,
                          dlc_step_plan *plan) {
    int64_t padding = step->value[PADDING].i;
    int64_t y = draw_offset(random, plan->in_height + 2 * padding, plan->out_height);
    int64_t x = draw_offset(random, plan->in_width + 2 * padding, plan->out_width);
    plan->box = (dlc_rect){x - padding, y - padding, plan->out_width, plan->out_height};
}

dlc_rect dlc_crop_reads(const dlc_transform_step *step, const dlc_step_plan *plan) {
    (void)step;
    return (dlc_rect){plan->need.x + plan->box.x, plan->need.y + plan->box.y,
                      plan->need.width, plan->need.height};
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Copies `count` columns of `values` channels each, which lie together in `to`. */
static void copy_row(const dlc_image *from, const char *source, int64_t count,
                     int64_t values, char *to) {
    int64_t bytes = (int64_t)dlc_dtype_bytes(from->type);
    if (from->column == values) {
        memcpy(to, source, (size_t)(count * values * bytes));
        return;
    }
    for (int64_t i = 0; i < count; i++, to += values * bytes)
        for (int64_t c = 0; c < values; c++)
            memcpy(to + c * bytes,
                   source + (i * from->column + c * from->channel) * bytes,
                   (size_t)bytes);
}

/* Copies what the image has of `box`, a part of its whole; the rest stays 0. */
static void copy_part(const dlc_image *from, const dlc_rect *box, const dlc_image *to) {
    int64_t x = box->x - (int64_t)from->x, y = box->y - (int64_t)from->y;
    int64_t left = clamp(-x, 0, box->width), top = clamp(-y, 0, box->height);
    int64_t right = clamp(from->width - x, left, box->width);
    int64_t bottom = clamp(from->height - y, top, box->height);
    int64_t values = to->column, bytes = (int64_t)dlc_dtype_bytes(to->type);
    for (int64_t c = 0; c < from->channels && left < right; c += values)
        for (int64_t row = top; row < bottom; row++) {
            const char *source = dlc_image_at(from, row + y, left + x);
            char *target = dlc_image_at(to, row, left);
            copy_row(from, source + c * from->channel * bytes, right - left, values,
                     target + c * to->channel * bytes);
        }
}

/* Shows the part of the image without its border. */
static void narrow(dlc_image *image, const dlc_rect *box) {
    int64_t x = box->x - (int64_t)image->x, y = box->y - (int64_t)image->y;
    image->pixels = dlc_image_at(image, y, x);
    image->width = box->width;
    image->height = box->height;
}

static int is_inside(const dlc_image *image, const dlc_rect *box) {
    int64_t x = box->x - (int64_t)image->x, y = box->y - (int64_t)image->y;
    return x >= 0 && y >= 0 && x + box->width <= image->width &&
           y + box->height <= image->height;
}

dlc_status dlc_crop_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                          dlc_transform_work *work) {
    dlc_rect box = dlc_crop_reads(step, plan);
    if (is_inside(&work->image, &box)) {
        narrow(&work->image, &box);
    } else {
        dlc_image bordered;
        int planes = work->image.channel != 1;
        DLC_TRY(dlc_work_make(work, box.height, box.width, planes, &bordered));
        size_t values = (size_t)(box.height * box.width * bordered.channels);
        memset(bordered.pixels, 0, values * dlc_dtype_bytes(bordered.type));
        copy_part(&work->image, &box, &bordered);
        dlc_work_take(work, &bordered);
    }
    work->image.x = (double)plan->need.x;
    work->image.y = (double)plan->need.y;
    return DLC_OK;
}

int32_t dlc_crop_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                      dlc_affine *map) {
    const dlc_rect *box = &plan->box;
    (void)step;
    *map = (dlc_affine){.a = (double)box->width / (double)plan->out_width,
                        .c = (double)box->x + (double)(box->width - plan->in_width) / 2,
                        .e = (double)box->height / (double)plan->out_height,
                        .f = (double)box->y +
                             (double)(box->height - plan->in_height) / 2};
    return 1;
}

/* ---- Mirror ------------------------------------------------------------------ */

void dlc_mirror_draw(const dlc_transform_step *step, dlc_random *random,
                     dlc_step_plan *plan) {
    plan->choice[0] = (double)dlc_random_uniform(random) < step->value[PROBABILITY].f;
}

dlc_rect dlc_mirror_reads(const dlc_transform_step *step, const dlc_step_plan *plan) {
    (void)step;
    dlc_rect reads = plan->need;
    if (plan->choice[0])
        reads.x = plan->in_width - plan->need.x - plan->need.width;
    return reads;
}

dlc_status dlc_mirror_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                            dlc_transform_work *work) {
    (void)step;
    dlc_image *image = &work->image;
    if (!plan->choice[0])
        return DLC_OK;
    image->pixels = dlc_image_at(image, 0, image->width - 1);
    image->column = -image->column;
    image->x = (double)plan->in_width * image->scale - image->x - (double)image->width;
    return DLC_OK;
}

int32_t dlc_mirror_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                        dlc_affine *map) {
    (void)step;
    *map = (dlc_affine){.a = -1, .e = 1};
    return plan->choice[0] ? 1 : 0;
}
