/* Applies a list to an image, transform by transform, in scratch memory of the calling
 * thread. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/transform_kinds.h"

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

static void *reserve(dlc_transform_scratch *scratch, int i, size_t bytes) {
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
    return reserve(work->scratch, OTHER, bytes);
}

dlc_status dlc_work_make(dlc_transform_work *work, int64_t height, int64_t width,
                         int planes, dlc_image *image) {
    /* Vector loads and stores may go a little beyond the last pixel. */
    enum { BEYOND = 64 };
    const dlc_image *from = &work->image;
    dlc_shape shape = {3, {from->channels, height, width}};
    size_t bytes = (size_t)dlc_shape_count(&shape) * dlc_dtype_bytes(from->type);
    void *memory = reserve(work->scratch, work->at == 0, bytes + BEYOND);
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
    made.x = from->x;
    made.y = from->y;
    made.scale = from->scale;
    dlc_work_take(work, &made);
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
    return dlc_work_write(&work, type, out);
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
