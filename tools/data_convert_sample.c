/* Makes the files of one sample. */
#include "data_convert.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "npy.h"

enum { WHOLE, RESULT };

static uint8_t *reserve(convert_worker *worker, int i, size_t bytes) {
    if (worker->room[i] < bytes) {
        dlc_free(worker->pixels[i]);
        worker->pixels[i] = dlc_alloc(bytes, 1);
        worker->room[i] = worker->pixels[i] ? bytes : 0;
    }
    return worker->pixels[i];
}

void convert_worker_free(convert_worker *worker) {
    dlc_read_sample_free(&worker->read);
    dlc_transform_scratch_free(&worker->scratch);
    dlc_free(worker->pixels[WHOLE]);
    dlc_free(worker->pixels[RESULT]);
    *worker = (convert_worker){0};
}

static int64_t shorter(int64_t height, int64_t width) {
    return height < width ? height : width;
}

int convert_is_resized(const convert_format *format, int64_t height, int64_t width) {
    return format->resize && shorter(height, width) > format->resize;
}

/* Makes a file of two pieces, of which the first may be empty. */
static dlc_status fill(convert_file *file, const void *head, uint64_t head_bytes,
                       const void *rest, uint64_t rest_bytes) {
    file->bytes = dlc_alloc(head_bytes + rest_bytes, 1);
    if (!file->bytes)
        return DLC_ERR_NOMEM;
    file->count = head_bytes + rest_bytes;
    if (head_bytes)
        memcpy(file->bytes, head, head_bytes);
    memcpy(file->bytes + head_bytes, rest, rest_bytes);
    return DLC_OK;
}

static void set_ending(convert_file *file, const char *ending) {
    (void)snprintf(file->ending, sizeof file->ending, "%s", ending);
}

/* Decodes the whole picture, no larger than resizing it needs. */
static dlc_status decode(const dlc_encoded *from, int32_t channels, double scale,
                         convert_worker *worker, dlc_image *image) {
    int32_t shrink = 1;
    while (shrink * 2 <= from->info.shrink_max && 1.0 / (shrink * 2) >= scale)
        shrink *= 2;
    const int32_t whole[4] = {0, 0, dlc_shrunk(from->info.width, shrink),
                              dlc_shrunk(from->info.height, shrink)};
    size_t bytes = (size_t)channels * (size_t)whole[2] * (size_t)whole[3];
    uint8_t *pixels = reserve(worker, WHOLE, bytes);
    if (!pixels)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_decoders_decode(from, channels, shrink, whole, pixels));
    *image = dlc_image_interleaved(pixels, channels, whole[3], whole[2]);
    image->scale = 1.0 / shrink;
    return DLC_OK;
}

/* Planes become pixels with their channels side by side. */
static void interleave(const uint8_t *from, int64_t channels, int64_t plane,
                       uint8_t *to) {
    for (int64_t i = 0; i < plane; i++)
        for (int64_t c = 0; c < channels; c++)
            *to++ = from[c * plane + i];
}

static dlc_status encode(const data_command *command, const convert_format *format,
                         int lossless, const uint8_t *planes, const dlc_encode_args *of,
                         convert_worker *worker, convert_file *file) {
    dlc_encode_args args = *of;
    int64_t plane = (int64_t)args.height * args.width;
    uint8_t *pixels = reserve(worker, WHOLE, (size_t)(plane * args.channels));
    if (!pixels)
        return DLC_ERR_NOMEM;
    interleave(planes, args.channels, plane, pixels);
    args.size = sizeof args;
    args.pixels = pixels;
    args.quality = format->quality;
    const char *ending = "";
    DLC_TRY(dlc_decoders_encode(command->setup->decoders, lossless, &args, &file->bytes,
                                &file->count, &ending));
    set_ending(file, ending);
    return DLC_OK;
}

static dlc_status plan_resize(const convert_format *format, int64_t height,
                              int64_t width, dlc_transform_plan *plan) {
    return dlc_transforms_plan(format->list, 0, 0, height, width, plan);
}

/* Resizes the image by the plan, to planes. */
static dlc_status resize(const convert_format *format, const dlc_transform_plan *plan,
                         const dlc_image *image, convert_worker *worker,
                         dlc_encode_args *made) {
    int64_t height = plan->step[0].out_height, width = plan->step[0].out_width;
    uint8_t *planes = reserve(worker, RESULT,
                              (size_t)(height * width * image->channels));
    if (!planes)
        return DLC_ERR_NOMEM;
    *made = (dlc_encode_args){.height = (int32_t)height,
                              .width = (int32_t)width,
                              .channels = (int32_t)image->channels};
    return dlc_transforms_apply(format->list, plan, image, &worker->scratch, DLC_U8,
                                planes);
}

static dlc_status convert_encoded(const data_command *command,
                                  const convert_format *format, const dlc_value *value,
                                  convert_worker *worker, convert_file *file) {
    const dlc_data_setup *data = command->data;
    dlc_encoded from;
    dlc_transform_plan plan;
    dlc_image image;
    dlc_encode_args made;
    DLC_TRY(dlc_decoders_inspect(data->decoders, value->data, value->bytes,
                                 dlc_settings_get_int(data->settings, "max_pixels"),
                                 &from));
    int32_t channels = (int32_t)data->info.shape.dims[0];
    if (!convert_is_resized(format, from.info.height, from.info.width)) {
        /* As small as it can be: all of its bytes are read, and few pixels made. */
        DLC_TRY(decode(&from, channels, 0, worker, &image));
        set_ending(file, from.ops->endings[0]);
        return fill(file, NULL, 0, from.bytes, from.count);
    }
    DLC_TRY(plan_resize(format, from.info.height, from.info.width, &plan));
    DLC_TRY(decode(&from, channels, plan.scale, worker, &image));
    DLC_TRY(resize(format, &plan, &image, worker, &made));
    return encode(command, format, 0, worker->pixels[RESULT], &made, worker, file);
}

static dlc_status convert_planes(const data_command *command,
                                 const convert_format *format, const dlc_value *value,
                                 convert_worker *worker, convert_file *file) {
    const dlc_samples *samples = &command->data->samples;
    dlc_image image = dlc_image_planes((void *)value->data, samples->info.dtype,
                                       &value->shape);
    dlc_encode_args made = {.height = (int32_t)image.height,
                            .width = (int32_t)image.width,
                            .channels = (int32_t)image.channels};
    const uint8_t *planes = value->data;
    if (convert_is_resized(format, image.height, image.width)) {
        dlc_transform_plan plan;
        DLC_TRY(plan_resize(format, image.height, image.width, &plan));
        DLC_TRY(resize(format, &plan, &image, worker, &made));
        planes = worker->pixels[RESULT];
    }
    return encode(command, format, 1, planes, &made, worker, file);
}

/* ---- Fields -------------------------------------------------------------------- */

/* A picture of a bounded size has its own, and so has an array of boxes; what else is
 * bounded would lose it. */
convert_form convert_form_of(const dlc_samples *samples, int32_t field) {
    const dlc_field *of = dlc_samples_field(samples, field);
    int64_t channels = of->shape.dims[0];
    if (field == samples->image && of->role == DLC_ROLE_IMAGE && of->dtype == DLC_U8 &&
        (channels == 1 || channels == 3))
        return CONVERT_PICTURE;
    if ((of->flags && of->role != DLC_ROLE_BOXES) ||
        strlen(of->name) + sizeof ".npy" > sizeof((convert_file *)0)->ending)
        return CONVERT_NOT;
    return field == samples->label ? CONVERT_CLASS : CONVERT_ARRAY;
}

static dlc_status convert_class(int32_t label, convert_file *file) {
    char text[16];
    int length = snprintf(text, sizeof text, "%d", (int)label);
    set_ending(file, "cls");
    return fill(file, NULL, 0, text, (uint64_t)length);
}

static dlc_status convert_array(const dlc_field *field, const dlc_value *value,
                                convert_file *file) {
    dlc_text head = {0};
    dlc_npy_header(&head, (dlc_dtype)field->dtype, &value->shape);
    (void)snprintf(file->ending, sizeof file->ending, "%s.npy", field->name);
    dlc_status status = dlc_text_status(&head);
    if (status == DLC_OK)
        status = fill(file, head.bytes, head.length, value->data, value->bytes);
    dlc_text_free(&head);
    return status;
}

static dlc_status convert_field(const data_command *command,
                                const convert_format *format, int32_t field,
                                convert_worker *worker, convert_file *file) {
    const dlc_samples *samples = &command->data->samples;
    const dlc_value *value = &worker->read.value[field];
    switch (convert_form_of(samples, field)) {
    case CONVERT_PICTURE:
        return dlc_samples_are_encoded(samples)
                   ? convert_encoded(command, format, value, worker, file)
                   : convert_planes(command, format, value, worker, file);
    case CONVERT_CLASS:
        return convert_class(worker->read.label, file);
    default:
        return convert_array(dlc_samples_field(samples, field), value, file);
    }
}

dlc_status convert_sample(const data_command *command, const convert_format *format,
                          int64_t index, pthread_mutex_t *lock, convert_worker *worker,
                          convert_files *made) {
    const dlc_samples *samples = &command->data->samples;
    uint32_t all = (UINT32_C(1) << samples->info.field_count) - 1;
    if (lock)
        pthread_mutex_lock(lock);
    dlc_status status = dlc_samples_read_fields(samples, index, all, NULL,
                                                &worker->read);
    if (lock)
        pthread_mutex_unlock(lock);
    for (int32_t f = 0; status == DLC_OK && f < samples->info.field_count; f++)
        status = convert_field(command, format, f, worker, &made->file[made->files++]);
    return status;
}

void convert_files_free(convert_files *files) {
    for (int32_t i = 0; i < files->files; i++)
        dlc_free(files->file[i].bytes);
}
