/* Transforms that move pixels: crops, mirror and rotate. A crop is another view of the
 * same pixels, unless it shows a border, and mirroring walks the columns backwards.
 * Rotating, shearing and translating take each pixel of the result from the place that
 * an affine map gives. */
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

static dlc_status crop_size(const dlc_transform_step *step, int64_t *height,
                            int64_t *width) {
    return crop_from(step, 0, height, width);
}

static dlc_status random_crop_size(const dlc_transform_step *step, int64_t *height,
                                   int64_t *width) {
    return crop_from(step, 2 * step->value[PADDING].i, height, width);
}

/* ---- Crops ------------------------------------------------------------------- */

/* Half of the difference, to the even number if it lies between two, as torchvision's
 * center_crop does. */
static int64_t half_to_even(int64_t difference) {
    return (int64_t)rint((double)difference / 2);
}

static void center_crop_draw(const dlc_transform_step *step, dlc_random *random,
                             dlc_step_plan *plan) {
    (void)step;
    (void)random;
    plan->box = (dlc_rect){half_to_even(plan->in_width - plan->out_width),
                           half_to_even(plan->in_height - plan->out_height),
                           plan->out_width, plan->out_height};
}

static int64_t draw_offset(dlc_random *random, int64_t whole, int64_t part) {
    return (int64_t)dlc_random_below(random, (uint64_t)(whole - part + 1));
}

static void random_crop_draw(const dlc_transform_step *step, dlc_random *random,
                             dlc_step_plan *plan) {
    int64_t padding = step->value[PADDING].i;
    int64_t y = draw_offset(random, plan->in_height + 2 * padding, plan->out_height);
    int64_t x = draw_offset(random, plan->in_width + 2 * padding, plan->out_width);
    plan->box = (dlc_rect){x - padding, y - padding, plan->out_width, plan->out_height};
}

static dlc_rect crop_reads(const dlc_transform_step *step, const dlc_step_plan *plan) {
    (void)step;
    return (dlc_rect){plan->need.x + plan->box.x, plan->need.y + plan->box.y,
                      plan->need.width, plan->need.height};
}

static int64_t clamp_to(int64_t value, int64_t low, int64_t high) {
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

/* Copies the part of `box` that the image covers; the rest stays 0. The box has
 * coordinates of the whole image, which `from` may be a part of. */
static void copy_part(const dlc_image *from, const dlc_rect *box, const dlc_image *to) {
    int64_t x = box->x - (int64_t)from->x, y = box->y - (int64_t)from->y;
    int64_t left = clamp_to(-x, 0, box->width), top = clamp_to(-y, 0, box->height);
    int64_t right = clamp_to(from->width - x, left, box->width);
    int64_t bottom = clamp_to(from->height - y, top, box->height);
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

static dlc_status crop_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                             dlc_transform_work *work) {
    dlc_rect box = crop_reads(step, plan);
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

static const dlc_option center_crop_options[] = {
    DLC_TRANSFORM_SIDES(
        "side of the square; two numbers without a name are height and width"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_center_crop = {
    .name = "center_crop",
    .help = "keep the middle of the image",
    .options = center_crop_options,
    .flags = DLC_TRANSFORM_SIZED | DLC_TRANSFORM_ANY,
    .check = dlc_crop_check,
    .size = crop_size,
    .draw = center_crop_draw,
    .reads = crop_reads,
    .apply = crop_apply,
    .maps = dlc_crop_maps,
};

static const dlc_option random_crop_options[] = {
    DLC_TRANSFORM_SIDES("side of the square"),
    DLC_INT("padding", "0", 0, DLC_TRANSFORM_SIDE_MAX,
            "width of a border of zeros, before the crop"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_random_crop = {
    .name = "random_crop",
    .help = "keep a part of the image, at random",
    .options = random_crop_options,
    .flags = DLC_TRANSFORM_ANY,
    .check = dlc_crop_check,
    .size = random_crop_size,
    .draw = random_crop_draw,
    .reads = crop_reads,
    .apply = crop_apply,
    .maps = dlc_crop_maps,
};

/* ---- Mirror ------------------------------------------------------------------ */

static void mirror_draw(const dlc_transform_step *step, dlc_random *random,
                        dlc_step_plan *plan) {
    plan->choice[0] = (double)dlc_random_uniform(random) < step->value[PROBABILITY].f;
}

static dlc_rect mirror_reads(const dlc_transform_step *step,
                             const dlc_step_plan *plan) {
    (void)step;
    dlc_rect reads = plan->need;
    if (plan->choice[0])
        reads.x = plan->in_width - plan->need.x - plan->need.width;
    return reads;
}

static dlc_status mirror_apply(const dlc_transform_step *step,
                               const dlc_step_plan *plan, dlc_transform_work *work) {
    (void)step;
    dlc_image *image = &work->image;
    if (!plan->choice[0])
        return DLC_OK;
    image->pixels = dlc_image_at(image, 0, image->width - 1);
    image->column = -image->column;
    image->x = (double)plan->in_width * image->scale - image->x - (double)image->width;
    return DLC_OK;
}

static int32_t mirror_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                           dlc_affine *map) {
    (void)step;
    *map = (dlc_affine){.a = -1, .e = 1};
    return plan->choice[0] ? 1 : 0;
}

static const dlc_option mirror_options[] = {
    DLC_FLOAT("p", "0.5", 0, 1, "probability"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_mirror = {
    .name = "mirror",
    .help = "swap left and right, at random",
    .options = mirror_options,
    .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_SCALABLE,
    .draw = mirror_draw,
    .reads = mirror_reads,
    .apply = mirror_apply,
    .maps = mirror_maps,
};

/* ---- Affine maps ------------------------------------------------------------------
 */

dlc_affine dlc_affine_rotate(double degrees) {
    double angle = degrees * M_PI / 180, sine = sin(angle), cosine = cos(angle);
    return (dlc_affine){.a = cosine, .b = -sine, .d = sine, .e = cosine};
}

static const uint8_t *pixel_at(const dlc_image *image, int64_t y, int64_t x) {
    if (x < 0 || y < 0 || x >= image->width || y >= image->height)
        return NULL;
    return (const uint8_t *)image->pixels + y * image->row + x * image->column;
}

static void take_nearest(const dlc_image *from, double y, double x, uint8_t *to) {
    const uint8_t *pixel = pixel_at(from, (int64_t)floor(y), (int64_t)floor(x));
    for (int64_t c = 0; c < from->channels; c++)
        to[c] = pixel ? pixel[c] : 0;
}

/* Pixels outside count as 0. */
static void take_between(const dlc_image *from, double y, double x, uint8_t *to) {
    double top = floor(y - 0.5), left = floor(x - 0.5);
    double down = y - 0.5 - top, right = x - 0.5 - left;
    const double weight[4] = {(1 - down) * (1 - right), (1 - down) * right,
                              down * (1 - right), down * right};
    const uint8_t *pixel[4];
    for (int i = 0; i < 4; i++)
        pixel[i] = pixel_at(from, (int64_t)top + i / 2, (int64_t)left + i % 2);
    for (int64_t c = 0; c < from->channels; c++) {
        double sum = 0;
        for (int i = 0; i < 4; i++)
            sum += pixel[i] ? weight[i] * (double)pixel[i][c] : 0;
        to[c] = (uint8_t)(sum + 0.5);
    }
}

void dlc_affine_map(const dlc_affine *affine, int bilinear, const dlc_image *from,
                    const dlc_image *to) {
    double middle_x = (double)from->width / 2, middle_y = (double)from->height / 2;
    for (int64_t row = 0; row < to->height; row++) {
        uint8_t *at = (uint8_t *)to->pixels + row * to->row;
        double y = (double)row + 0.5 - middle_y;
        for (int64_t column = 0; column < to->width; column++, at += to->column) {
            double x = (double)column + 0.5 - middle_x;
            double from_x = affine->a * x + affine->b * y + affine->c + middle_x;
            double from_y = affine->d * x + affine->e * y + affine->f + middle_y;
            if (bilinear)
                take_between(from, from_y, from_x, at);
            else
                take_nearest(from, from_y, from_x, at);
        }
    }
}

/* ---- rotate -----------------------------------------------------------------------
 */

enum { DEGREES, BETWEEN };

static void rotate_draw(const dlc_transform_step *step, dlc_random *random,
                        dlc_step_plan *plan) {
    double most = step->value[DEGREES].f;
    plan->amount[0] = dlc_draw_between(random, -most, most);
}

dlc_status dlc_work_map(dlc_transform_work *work, const dlc_affine *affine,
                        int bilinear) {
    dlc_image made;
    DLC_TRY(dlc_work_interleave(work));
    DLC_TRY(dlc_work_make(work, work->image.height, work->image.width, 0, &made));
    dlc_affine_map(affine, bilinear && !work->is_mask, &work->image, &made);
    dlc_work_replace(work, &made);
    return DLC_OK;
}

static int32_t rotate_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                           dlc_affine *map) {
    (void)step;
    *map = dlc_affine_rotate(plan->amount[0]);
    return 1;
}

static dlc_status rotate_apply(const dlc_transform_step *step,
                               const dlc_step_plan *plan, dlc_transform_work *work) {
    dlc_affine affine;
    (void)rotate_maps(step, plan, &affine);
    return dlc_work_map(work, &affine, strcmp(step->value[BETWEEN].s, "bilinear") == 0);
}

static const dlc_option rotate_options[] = {
    DLC_OPTION("degrees", DLC_OPT_FLOAT, DLC_OPT_REQUIRED, NULL, 0, 180, NULL,
               "the most, to either side"),
    DLC_CHOICE("interpolation", "bilinear", "bilinear|nearest",
               "how pixels are taken from between pixels"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_rotate = {
    .name = "rotate",
    .help = "turn the image about its center, by a random angle",
    .options = rotate_options,
    .draw = rotate_draw,
    .reads = dlc_read_whole,
    .apply = rotate_apply,
    .maps = rotate_maps,
};
