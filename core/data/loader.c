/* Loads one sample. */
#include "data/loader.h"

#include <string.h>

#include "base/memory.h"

/* ---- Opening ----------------------------------------------------------------- */

/* The bytes of an image of the source, which the net can take. */
static dlc_status measure(dlc_loader *loader) {
    const dlc_data_info *info = &loader->samples.info;
    size_t bytes = dlc_dtype_bytes(info->dtype);
    int sound = info->samples >= 1 && info->shape.rank == 3 && info->classes >= 0 &&
                (info->dtype == DLC_U8 || info->dtype == DLC_F32);
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

/* Determines shape and type of the images that are loaded. */
static dlc_status choose_format(dlc_loader *loader) {
    const dlc_loader_args *args = &loader->args;
    const dlc_augment *augment = &args->augment;
    const dlc_data_info *info = &loader->samples.info;
    DLC_TRY(measure(loader));
    DLC_TRY(dlc_augment_shape(augment, &info->shape, &loader->shape));
    int as_bytes = args->keep_bytes && info->dtype == DLC_U8;
    int mirrored = augment->mirror && !args->test;
    loader->dtype = as_bytes ? DLC_U8 : DLC_F32;
    loader->as_read = as_bytes && !mirrored &&
                      dlc_augment_is_whole(augment, &info->shape, &loader->shape);
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
}

/* ---- Loading ----------------------------------------------------------------- */

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

static void augment(const dlc_loader *loader, const void *from, uint64_t position,
                    void *to) {
    const dlc_loader_args *args = &loader->args;
    const dlc_augment *how = &args->augment;
    const dlc_data_info *info = &loader->samples.info;
    const dlc_shape *in = &info->shape, *out = &loader->shape;
    dlc_cut cut = args->test ? dlc_augment_middle(in, out, how)
                             : dlc_augment_draw(in, out, how, args->seed, position);
    if (loader->dtype == DLC_U8)
        dlc_augment_cut(how, &cut, in, from, out, to);
    else
        dlc_augment_apply(how, &cut, info->dtype, in, from, out, to);
}

dlc_status dlc_loader_load(dlc_loader *loader, dlc_load_scratch *scratch, int64_t index,
                           uint64_t position, void *image, int32_t *label) {
    dlc_read_sample *read = &scratch->read;
    DLC_TRY(read_sample(loader, index, loader->as_read ? image : NULL, read));
    if (!loader->args.labels_only && !loader->as_read)
        augment(loader, read->value[loader->samples.image].data, position, image);
    *label = read->label;
    return DLC_OK;
}
