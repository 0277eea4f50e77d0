/* Applies a list to an image, transform by transform, in scratch memory of the calling
 * thread, and to the mask and the boxes of the image. At the end of a list, whatever
 * view of an image there is becomes planes, of bytes or of normalized float32: every
 * value that a net reads passes through these loops. */
#include <math.h>
#include <string.h>

#include <dlcore/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/clones.h"
#include "data/transform_kinds.h"

/* ---- normalize --------------------------------------------------------------------
 */

/* The mean and the factor of each channel, applied where samples become float32: at the
 * end of a list, or by a device. */

enum { MEAN, STD, SCALE };

static dlc_status normalize_check(const dlc_transform_step *step) {
    if (step->given & 1u << STD && step->given & 1u << SCALE)
        return dlc_fail(DLC_ERR_CONFIG, "takes std or scale, not both");
    return DLC_OK;
}

/* The list's normalize; NULL if it has none. */
static const dlc_transform_step *find_normalize(const dlc_transforms *list) {
    const dlc_transform_step *last = list->count ? &list->step[list->count - 1] : NULL;
    return last && last->kind == &dlc_transform_normalize ? last : NULL;
}

/* The value of a channel; `otherwise` if none was given. */
static double channel_value(const dlc_transform_step *step, int option, int64_t channel,
                            double otherwise) {
    size_t count = step ? step->value[option].list.count : 0;
    const double *values = count ? step->value[option].list.memory : NULL;
    return values ? values[count > 1 ? channel : 0] : otherwise;
}

float dlc_transforms_mean(const dlc_transforms *list, int64_t channel) {
    return (float)channel_value(find_normalize(list), MEAN, channel, 0);
}

float dlc_transforms_scale(const dlc_transforms *list, int64_t channel) {
    const dlc_transform_step *step = find_normalize(list);
    if (step && step->given & 1u << SCALE)
        return (float)step->value[SCALE].f;
    return (float)(1 / channel_value(step, STD, channel, 1));
}

static const dlc_option normalize_options[] = {
    DLC_FLOATS("mean", NULL, -1e30, 1e30,
               "subtracted: one value, or one per channel, in units of the samples' "
               "values (0 .. 255 for images)"),
    DLC_FLOATS("std", NULL, 1e-30, 1e30,
               "divides what is left: one value, or one per channel"),
    DLC_FLOAT("scale", NULL, -1e30, 1e30, "factor, instead of `std`"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_normalize = {
    .name = "normalize",
    .help = "subtract a mean and divide by a standard deviation; the last of a list",
    .options = normalize_options,
    .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_LAST,
    .check = normalize_check,
};

/* ---- The end of a list ------------------------------------------------------------
 */

CLONES static void normalize_bytes(float *restrict to, const uint8_t *restrict from,
                                   int64_t n, float mean, float scale) {
    for (int64_t i = 0; i < n; i++)
        to[i] = ((float)from[i] - mean) * scale;
}

CLONES static void normalize_floats(float *restrict to, const float *restrict from,
                                    int64_t n, float mean, float scale) {
    for (int64_t i = 0; i < n; i++)
        to[i] = (from[i] - mean) * scale;
}

/* Copies eight bytes at a time, as a word with its bytes swapped. */
static void copy_reversed(uint8_t *restrict to, const uint8_t *restrict from,
                          int64_t n) {
    const uint8_t *end = from + n;
    for (; n >= 8; n -= 8, to += 8) {
        uint64_t word;
        end -= 8;
        memcpy(&word, end, 8);
        word = __builtin_bswap64(word);
        memcpy(to, &word, 8);
    }
    while (n-- > 0)
        *to++ = *--end;
}

CLONES static void split3(uint8_t *restrict to, int64_t plane,
                          const uint8_t *restrict from, int64_t n) {
    uint8_t *restrict first = to, *restrict second = to + plane,
                      *restrict third = to + 2 * plane;
    for (int64_t i = 0; i < n; i++) {
        first[i] = from[3 * i];
        second[i] = from[3 * i + 1];
        third[i] = from[3 * i + 2];
    }
}

/* Writes a row of bytes: n columns of each channel, whose planes lie `plane` apart.
 * `room` has as many bytes. */
static void write_bytes(const dlc_image *image, const uint8_t *from, int64_t n,
                        int64_t plane, uint8_t *room, uint8_t *to) {
    int64_t channels = image->channels, column = image->column;
    if (channels == 3 && image->channel == 1 && column == 3) {
        split3(to, plane, from, n);
        return;
    }
    if (channels == 3 && image->channel == 1 && column == -3) {
        split3(room, n, from - 3 * (n - 1), n);
        for (int64_t c = 0; c < 3; c++)
            copy_reversed(to + c * plane, room + c * n, n);
        return;
    }
    for (int64_t c = 0; c < channels; c++, to += plane, from += image->channel) {
        if (column == 1)
            memcpy(to, from, (size_t)n);
        else if (column == -1)
            copy_reversed(to, from - (n - 1), n);
        else
            for (int64_t i = 0; i < n; i++)
                to[i] = from[i * column];
    }
}

/* The same of bytes that become floats. `room` has twice as many bytes. */
static void write_normalized(const dlc_transform_work *work, const uint8_t *from,
                             int64_t n, int64_t plane, uint8_t *room, float *to) {
    const dlc_image *image = &work->image;
    int is_split = image->column == 1;
    if (!is_split)
        write_bytes(image, from, n, n, room + image->channels * n, room);
    for (int64_t c = 0; c < image->channels; c++)
        normalize_bytes(
            to + c * plane, is_split ? from + c * image->channel : room + c * n, n,
            dlc_transforms_mean(work->list, c), dlc_transforms_scale(work->list, c));
}

static void write_floats(const dlc_transform_work *work, const float *from, int64_t n,
                         int64_t plane, float *to) {
    const dlc_image *image = &work->image;
    for (int64_t c = 0; c < image->channels; c++, to += plane, from += image->channel) {
        float mean = dlc_transforms_mean(work->list, c);
        float scale = dlc_transforms_scale(work->list, c);
        if (image->column == 1)
            normalize_floats(to, from, n, mean, scale);
        else
            for (int64_t i = 0; i < n; i++)
                to[i] = (from[i * image->column] - mean) * scale;
    }
}

/* Writes the work's image to `out`: CHW, floats normalized. */
static dlc_status work_write(const dlc_transform_work *work, dlc_dtype type,
                             void *out) {
    const dlc_image *image = &work->image;
    int64_t rows = image->height, n = image->width, plane = rows * n;
    if (image->column == 1 &&
        image->row == n) { /* rows without gaps are one long row */
        n = plane;
        rows = 1;
    }
    uint8_t *room = NULL;
    if (image->column != 1) {
        room = dlc_work_memory(work, (size_t)(2 * n * image->channels));
        if (!room)
            return DLC_ERR_NOMEM;
    }
    for (int64_t row = 0; row < rows; row++) {
        const void *from = dlc_image_at(image, row, 0);
        if (type == DLC_U8)
            write_bytes(image, from, n, plane, room, (uint8_t *)out + row * n);
        else if (image->type == DLC_U8)
            write_normalized(work, from, n, plane, room, (float *)out + row * n);
        else
            write_floats(work, from, n, plane, (float *)out + row * n);
    }
    return DLC_OK;
}

enum { IMAGES = 2, OTHER = 2 }; /* scratch memories: of images, and of anything else */

/* ---- Images ------------------------------------------------------------------ */

dlc_image dlc_image_interleaved(uint8_t *pixels, int64_t channels, int64_t height,
                                int64_t width) {
    return (dlc_image){.pixels = pixels,
                       .type = DLC_U8,
                       .channels = channels,
                       .height = height,
                       .width = width,
                       .row = width * channels,
                       .column = channels,
                       .channel = 1,
                       .scale = 1};
}

dlc_image dlc_image_planes(void *pixels, dlc_dtype type, const dlc_shape *shape) {
    return (dlc_image){.pixels = pixels,
                       .type = type,
                       .channels = shape->dims[0],
                       .height = shape->dims[1],
                       .width = shape->dims[2],
                       .row = shape->dims[2],
                       .column = 1,
                       .channel = shape->dims[1] * shape->dims[2],
                       .scale = 1};
}

void *dlc_image_at(const dlc_image *image, int64_t row, int64_t column) {
    int64_t element = row * image->row + column * image->column;
    return (char *)image->pixels + element * (int64_t)dlc_dtype_bytes(image->type);
}

/* ---- Scratch memory ---------------------------------------------------------- */

static void *reserve_scratch(dlc_transform_scratch *scratch, int i, size_t bytes) {
    if (scratch->bytes[i] < bytes) {
        dlc_free(scratch->memory[i]);
        scratch->memory[i] = dlc_alloc(bytes, 1);
        scratch->bytes[i] = scratch->memory[i] ? bytes : 0;
    }
    return scratch->memory[i];
}

void dlc_transform_scratch_free(dlc_transform_scratch *scratch) {
    for (int i = 0; i <= OTHER; i++)
        dlc_free(scratch->memory[i]);
    *scratch = (dlc_transform_scratch){0};
}

void *dlc_work_memory(const dlc_transform_work *work, size_t bytes) {
    return reserve_scratch(work->scratch, OTHER, bytes);
}

dlc_status dlc_work_make(dlc_transform_work *work, int64_t height, int64_t width,
                         int planes, dlc_image *image) {
    /* Vector loads and stores may go a little beyond the last pixel. */
    enum { BEYOND = 64 };
    const dlc_image *from = &work->image;
    dlc_shape shape = {3, {from->channels, height, width}};
    size_t bytes = (size_t)dlc_shape_count(&shape) * dlc_dtype_bytes(from->type);
    void *memory = reserve_scratch(work->scratch, work->at == 0, bytes + BEYOND);
    if (!memory)
        return DLC_ERR_NOMEM;
    *image = dlc_image_planes(memory, from->type, &shape);
    if (!planes) {
        image->row = width * from->channels;
        image->column = from->channels;
        image->channel = 1;
    }
    return DLC_OK;
}

void dlc_work_take(dlc_transform_work *work, const dlc_image *image) {
    work->image = *image;
    work->at = image->pixels == work->scratch->memory[0] ? 0 : 1;
}

void dlc_work_replace(dlc_transform_work *work, dlc_image *image) {
    image->x = work->image.x;
    image->y = work->image.y;
    image->scale = work->image.scale;
    dlc_work_take(work, image);
}

static int is_interleaved(const dlc_image *image) {
    return image->channel == 1 && image->column == image->channels;
}

static dlc_status copy_interleaved(dlc_transform_work *work) {
    const dlc_image *from = &work->image;
    dlc_image made;
    DLC_TRY(dlc_work_make(work, from->height, from->width, 0, &made));
    uint8_t *to = made.pixels;
    for (int64_t row = 0; row < from->height; row++) {
        const uint8_t *pixel = dlc_image_at(from, row, 0);
        for (int64_t i = 0; i < from->width; i++, pixel += from->column)
            for (int64_t c = 0; c < from->channels; c++)
                *to++ = pixel[c * from->channel];
    }
    dlc_work_replace(work, &made);
    return DLC_OK;
}

dlc_status dlc_work_interleave(dlc_transform_work *work) {
    return is_interleaved(&work->image) ? DLC_OK : copy_interleaved(work);
}

dlc_status dlc_work_own(dlc_transform_work *work) {
    int own = work->at >= 0 && is_interleaved(&work->image);
    return own ? DLC_OK : copy_interleaved(work);
}

/* ---- The list ---------------------------------------------------------------- */

dlc_status dlc_transforms_apply(const dlc_transforms *list,
                                const dlc_transform_plan *plan, const dlc_image *image,
                                dlc_transform_scratch *scratch, dlc_dtype type,
                                void *out) {
    dlc_transform_work work = {
        .list = list, .image = *image, .scratch = scratch, .at = -1};
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_transform_step *step = &list->step[i];
        if (step->kind->apply)
            DLC_TRY(step->kind->apply(step, &plan->step[i], &work));
    }
    return work_write(&work, type, out);
}

dlc_status dlc_transforms_apply_mask(const dlc_transforms *list,
                                     const dlc_transform_plan *plan,
                                     const dlc_image *mask,
                                     dlc_transform_scratch *scratch, int32_t *out) {
    dlc_transform_work work = {
        .list = list, .image = *mask, .scratch = scratch, .at = -1, .is_mask = 1};
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_transform_step *step = &list->step[i];
        if (step->kind->maps)
            DLC_TRY(step->kind->apply(step, &plan->step[i], &work));
    }
    for (int64_t row = 0; row < work.image.height; row++)
        for (int64_t column = 0; column < work.image.width; column++)
            *out++ = *(const uint8_t *)dlc_image_at(&work.image, row, column);
    return DLC_OK;
}

/* ---- Boxes ------------------------------------------------------------------------
 */

/* The least side of a box that is left, in pixels: the min_size that torchvision's
 * SanitizeBoundingBoxes has unless it is told otherwise. */
#define MIN_SIDE 1.0

/* A box on its way through a list. */
typedef struct moving_box {
    double x0, y0, x1, y1;
    double visible; /* the share of its area that is left */
} moving_box;

static double area_of(const moving_box *box) {
    return fmax(0, box->x1 - box->x0) * fmax(0, box->y1 - box->y0);
}

/* Moves the box to the one around its corners, which the map, as it says where pixels
 * come from, is inverted for. */
static void move_box(const dlc_step_plan *plan, const dlc_affine *map,
                     moving_box *box) {
    double determinant = map->a * map->e - map->b * map->d;
    moving_box made = {INFINITY, INFINITY, -INFINITY, -INFINITY, box->visible};
    for (int corner = 0; corner < 4; corner++) {
        double x = (corner & 1 ? box->x1 : box->x0) - (double)plan->in_width / 2;
        double y = (corner & 2 ? box->y1 : box->y0) - (double)plan->in_height / 2;
        double right = (map->e * (x - map->c) - map->b * (y - map->f)) / determinant;
        double down = (map->a * (y - map->f) - map->d * (x - map->c)) / determinant;
        made.x0 = fmin(made.x0, right + (double)plan->out_width / 2);
        made.x1 = fmax(made.x1, right + (double)plan->out_width / 2);
        made.y0 = fmin(made.y0, down + (double)plan->out_height / 2);
        made.y1 = fmax(made.y1, down + (double)plan->out_height / 2);
    }
    *box = made;
}

static void clip_box(int64_t height, int64_t width, moving_box *box) {
    double whole = area_of(box);
    box->x0 = fmax(box->x0, 0);
    box->y0 = fmax(box->y0, 0);
    box->x1 = fmin(box->x1, (double)width);
    box->y1 = fmin(box->y1, (double)height);
    box->visible *= whole > 0 ? area_of(box) / whole : 0;
}

static moving_box follow_box(const dlc_transforms *list, const dlc_transform_plan *plan,
                             const float *row) {
    moving_box box = {(double)row[DLC_BOX_X0], (double)row[DLC_BOX_Y0],
                      (double)row[DLC_BOX_X1], (double)row[DLC_BOX_Y1], 1};
    clip_box(plan->height, plan->width, &box);
    box.visible = 1; /* what was never in the image does not count as lost */
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_transform_step *step = &list->step[i];
        dlc_affine map[DLC_TRANSFORM_MAPS];
        int32_t maps = step->kind->maps ? step->kind->maps(step, &plan->step[i], map)
                                        : 0;
        for (int32_t k = 0; k < maps; k++) {
            move_box(&plan->step[i], &map[k], &box);
            clip_box(plan->step[i].out_height, plan->step[i].out_width, &box);
        }
    }
    return box;
}

static int is_left(const moving_box *box, double min_visibility) {
    return box->visible > 0 && box->visible >= min_visibility &&
           box->x1 - box->x0 >= MIN_SIDE && box->y1 - box->y0 >= MIN_SIDE;
}

int64_t dlc_transforms_apply_boxes(const dlc_transforms *list,
                                   const dlc_transform_plan *plan,
                                   double min_visibility, const float *from,
                                   int64_t rows, float *to) {
    int64_t kept = 0;
    for (int64_t i = 0; i < rows; i++, from += DLC_BOX_VALUES) {
        if (from[DLC_BOX_CLASS] < 0)
            continue;
        moving_box box = follow_box(list, plan, from);
        if (!is_left(&box, min_visibility))
            continue;
        to[DLC_BOX_CLASS] = from[DLC_BOX_CLASS];
        to[DLC_BOX_X0] = (float)box.x0;
        to[DLC_BOX_Y0] = (float)box.y0;
        to[DLC_BOX_X1] = (float)box.x1;
        to[DLC_BOX_Y1] = (float)box.y1;
        to += DLC_BOX_VALUES;
        kept++;
    }
    return kept;
}
