/* Loads one sample. */
#include "data/loader.h"

#include <string.h>

#include "base/memory.h"

enum { NAME_BYTES = 512 };

/* ---- Opening ----------------------------------------------------------------- */

/* The bytes of an image of the source, which the net can take. */
static dlc_status measure(dlc_loader *loader) {
    const dlc_data_info *info = &loader->samples.info;
    size_t bytes = dlc_dtype_bytes(info->dtype);
    int sound = info->samples >= 1 && info->shape.rank == 3 && info->classes >= 0 &&
                (info->dtype == DLC_U8 || info->dtype == DLC_F32);
    if (sound && dlc_samples_are_encoded(&loader->samples))
        return DLC_OK;
    for (int32_t i = 0; sound && i < 3; i++)
        sound = info->shape.dims[i] >= 1 &&
                !__builtin_mul_overflow(bytes, (size_t)info->shape.dims[i], &bytes);
    if (!sound || bytes > PTRDIFF_MAX / sizeof(float))
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the data source describes invalid samples: there must be at "
                        "least one, of shape C, H, W, as bytes or float32");
    loader->in_bytes = bytes;
    return DLC_OK;
}

/* Is every image that is loaded the one that is read, but for its type? */
static int keeps_images(const dlc_loader *loader) {
    const dlc_loader_args *args = &loader->args;
    const dlc_samples *samples = &loader->samples;
    if (dlc_samples_field(samples, samples->image)->flags)
        return 0;
    return dlc_transforms_keep(args->transforms);
}

/* Determines shape and type of the images that are loaded. */
static dlc_status choose_format(dlc_loader *loader) {
    const dlc_loader_args *args = &loader->args;
    const dlc_data_info *info = &loader->samples.info;
    DLC_TRY(measure(loader));
    DLC_TRY(dlc_transforms_shape(args->transforms, &info->shape, info->dtype,
                                 &loader->shape));
    int as_bytes = args->keep_bytes && info->dtype == DLC_U8;
    loader->dtype = as_bytes ? DLC_U8 : DLC_F32;
    loader->as_read = as_bytes && keeps_images(loader);
    size_t count = (size_t)dlc_shape_count(&loader->shape);
    if (__builtin_mul_overflow(count, dlc_dtype_bytes(loader->dtype), &loader->bytes))
        return dlc_fail(DLC_ERR_NOMEM, "a sample of %zu values is too large", count);
    return DLC_OK;
}

dlc_status dlc_loader_open(const dlc_loader_args *args, dlc_loader *loader) {
    *loader = (dlc_loader){.args = *args};
    DLC_TRY(dlc_samples_describe(args->ops, args->source, &loader->samples));
    DLC_TRY(choose_format(loader));
    if (!args->concurrent) {
        pthread_mutex_init(&loader->lock, NULL);
        loader->has_lock = 1;
    }
    return DLC_OK;
}

void dlc_loader_close(dlc_loader *loader) {
    if (loader->has_lock)
        pthread_mutex_destroy(&loader->lock);
    *loader = (dlc_loader){0};
}

void dlc_load_scratch_free(dlc_load_scratch *scratch) {
    dlc_read_sample_free(&scratch->read);
    dlc_transform_scratch_free(&scratch->transform);
    dlc_free(scratch->pixels);
    *scratch = (dlc_load_scratch){0};
}

/* ---- Loading ----------------------------------------------------------------- */

static dlc_status reserve(dlc_load_scratch *scratch, size_t bytes) {
    if (scratch->room >= bytes)
        return DLC_OK;
    dlc_free(scratch->pixels);
    bytes += bytes / 4; /* the next picture may be a little larger */
    scratch->pixels = dlc_alloc(bytes, 1);
    scratch->room = scratch->pixels ? bytes : 0;
    return scratch->pixels ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status read_sample(dlc_loader *loader, int64_t index, void *into,
                              dlc_read_sample *read) {
    if (loader->has_lock)
        pthread_mutex_lock(&loader->lock);
    dlc_status status = dlc_samples_read(&loader->samples, index,
                                         loader->args.labels_only, into, read);
    if (loader->has_lock)
        pthread_mutex_unlock(&loader->lock);
    return status;
}

/* How much smaller the picture may be decoded: the largest power of two that the
 * decoder can do and that leaves at least the scale that the plan asks for. */
static int32_t choose_shrink(const dlc_encoded *file, double scale) {
    int32_t shrink = 1;
    while (shrink * 2 <= file->info.shrink_max && 1.0 / (shrink * 2) >= scale)
        shrink *= 2;
    return shrink;
}

/* A span of the picture at full size, in pixels of the shrunk one. */
static void shrink_span(int64_t begin, int64_t size, int32_t all, int32_t shrink,
                        int32_t *at, int32_t *count) {
    int64_t end = (begin + size + shrink - 1) / shrink;
    int32_t most = dlc_shrunk(all, shrink);
    *at = (int32_t)(begin / shrink);
    *count = (int32_t)(end < most ? end : most) - *at;
}

/* Decodes the part of the picture that the plan needs. */
static dlc_status decode(const dlc_loader *loader, const dlc_encoded *file,
                         dlc_load_scratch *scratch, dlc_image *image) {
    const dlc_transform_plan *plan = &scratch->plan;
    int32_t channels = (int32_t)loader->samples.info.shape.dims[0];
    int32_t shrink = choose_shrink(file, plan->scale), region[4];
    shrink_span(plan->region.x, plan->region.width, file->info.width, shrink,
                &region[0], &region[2]);
    shrink_span(plan->region.y, plan->region.height, file->info.height, shrink,
                &region[1], &region[3]);
    DLC_TRY(reserve(scratch, (size_t)region[2] * (size_t)region[3] * (size_t)channels));
    DLC_TRY(dlc_decoders_decode(file, channels, shrink, region, scratch->pixels));
    *image = dlc_image_interleaved(scratch->pixels, channels, region[3], region[2]);
    image->x = region[0];
    image->y = region[1];
    image->scale = 1.0 / shrink;
    return DLC_OK;
}

/* Makes what the net reads of the file of a picture. */
static dlc_status load_file(dlc_loader *loader, dlc_load_scratch *scratch,
                            uint64_t position, void *to) {
    const dlc_loader_args *args = &loader->args;
    const dlc_value *value = &scratch->read.value[loader->samples.image];
    dlc_encoded file;
    dlc_image image;
    DLC_TRY(dlc_decoders_inspect(args->decoders, value->data, value->bytes,
                                 args->max_pixels, &file));
    DLC_TRY(dlc_transforms_plan(args->transforms, args->seed, position,
                                file.info.height, file.info.width, &scratch->plan));
    DLC_TRY(decode(loader, &file, scratch, &image));
    return dlc_transforms_apply(args->transforms, &scratch->plan, &image,
                                &scratch->transform, loader->dtype, to);
}

/* Makes what the net reads of planes. */
static dlc_status load_planes(dlc_loader *loader, dlc_load_scratch *scratch,
                              uint64_t position, void *to) {
    const dlc_loader_args *args = &loader->args;
    const dlc_value *value = &scratch->read.value[loader->samples.image];
    /* The source's pixels are only read. */
    dlc_image image = dlc_image_planes((void *)value->data, loader->samples.info.dtype,
                                       &value->shape);
    DLC_TRY(dlc_transforms_plan(args->transforms, args->seed, position, image.height,
                                image.width, &scratch->plan));
    return dlc_transforms_apply(args->transforms, &scratch->plan, &image,
                                &scratch->transform, loader->dtype, to);
}

/* Puts the name of the sample before the detail sentence of a failure. */
static dlc_status name_failure(const dlc_loader *loader, int64_t index,
                               dlc_status status) {
    char name[NAME_BYTES];
    if (status != DLC_ERR_DATA)
        return status;
    dlc_samples_name(&loader->samples, index, name, sizeof name);
    return dlc_fail(status, "%s: %s", name, dlc_detail());
}

dlc_status dlc_loader_load(dlc_loader *loader, dlc_load_scratch *scratch, int64_t index,
                           uint64_t position, void *image, int32_t *label) {
    const dlc_loader_args *args = &loader->args;
    dlc_status status = DLC_OK;
    DLC_TRY(read_sample(loader, index, loader->as_read ? image : NULL, &scratch->read));
    uint64_t draw = args->test ? (uint64_t)index : position;
    if (args->labels_only || loader->as_read)
        ;
    else if (dlc_samples_are_encoded(&loader->samples))
        status = load_file(loader, scratch, draw, image);
    else
        status = load_planes(loader, scratch, draw, image);
    *label = scratch->read.label;
    return name_failure(loader, index, status);
}
