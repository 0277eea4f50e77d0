/* Loads one sample. */
#include "data/loader.h"

#include <string.h>

#include "base/memory.h"
#include "data/load_fields.h"

/* ---- Opening ----------------------------------------------------------------- */

/* Is every picture that is loaded the one that is read, but for its type? */
static int keeps_data(const dlc_loader *loader) {
    const dlc_loaded_field *data = &loader->field[DLC_FIELD_DATA];
    return data->field && !data->field->flags &&
           dlc_transforms_keep(loader->args.transforms);
}

/* Is a batch what a source without fields reads: images, and the class of each? */
static int is_simple(const dlc_loader *loader) {
    const dlc_loaded_field *label = &loader->field[DLC_FIELD_LABEL];
    return loader->as_read && !loader->samples.info.fields && loader->fields == 2 &&
           label->source == loader->samples.label && label->dtype == DLC_I32 &&
           !loader->args.fields.unread;
}

/* Takes what the source's field becomes. One that there is none of is a class. */
static dlc_status open_field(dlc_loader *loader, int32_t i, int32_t source) {
    dlc_loaded_field *made = &loader->field[i];
    *made = (dlc_loaded_field){.source = source,
                               .dtype = DLC_I32,
                               .is_label = loader->args.fields.labels >> i & 1};
    if (source >= 0) {
        made->field = dlc_samples_field(&loader->samples, source);
        made->kind = dlc_role_find(made->field->role);
        made->dtype = made->kind->dtype;
        DLC_TRY(dlc_load_shape(loader, made->field, &made->shape));
        if (made->kind->role == DLC_ROLE_CLASS && loader->args.soft_labels)
            made->dtype = DLC_F32;
        /* Boxes are what a layer compares with, whether or not it is a loss. */
        made->is_label |= made->kind->role == DLC_ROLE_BOXES;
        if (!(loader->args.fields.unread >> i & 1))
            loader->wanted |= dlc_load_needs(loader, source);
    }
    int as_bytes = i == DLC_FIELD_DATA && loader->args.keep_bytes && made->field &&
                   made->field->role == DLC_ROLE_IMAGE && made->field->dtype == DLC_U8;
    if (as_bytes)
        made->dtype = DLC_U8;
    size_t count = (size_t)dlc_shape_count(&made->shape);
    if (__builtin_mul_overflow(count, dlc_dtype_bytes(made->dtype), &made->bytes) ||
        __builtin_add_overflow(loader->bytes, made->bytes, &loader->bytes) ||
        loader->bytes > PTRDIFF_MAX / sizeof(float))
        return dlc_fail(DLC_ERR_NOMEM, "a sample of %zu values is too large", count);
    return DLC_OK;
}

/* Checks what a source without fields says, which has not been checked. */
static dlc_status check_simple(const dlc_loader *loader) {
    const dlc_data_info *info = &loader->samples.info;
    size_t bytes = dlc_dtype_bytes(info->dtype);
    int sound = info->samples >= 1 && info->classes >= 0;
    if (!info->fields)
        sound = sound && info->shape.rank == 3 &&
                (info->dtype == DLC_U8 || info->dtype == DLC_F32);
    for (int32_t i = 0; sound && !info->fields && i < 3; i++)
        sound = info->shape.dims[i] >= 1 &&
                !__builtin_mul_overflow(bytes, (size_t)info->shape.dims[i], &bytes);
    if (sound && bytes <= PTRDIFF_MAX / sizeof(float))
        return DLC_OK;
    return dlc_fail(DLC_ERR_INTERNAL,
                    "the data source describes invalid samples: there must be at "
                    "least one, of shape C, H, W, as bytes or float32");
}

static dlc_status open_fields(dlc_loader *loader) {
    dlc_batch_fields *fields = &loader->args.fields;
    DLC_TRY(check_simple(loader));
    if (!fields->count)
        *fields = (dlc_batch_fields){
            .count = 2,
            .source = {loader->samples.image, loader->samples.target},
            .labels = 1u << DLC_FIELD_LABEL,
            .unread = fields->unread};
    for (; loader->fields < fields->count; loader->fields++)
        DLC_TRY(open_field(loader, loader->fields, fields->source[loader->fields]));
    const dlc_loaded_field *data = &loader->field[DLC_FIELD_DATA];
    if (data->field && !(data->field->flags & DLC_FIELD_ENCODED))
        loader->in_bytes = (size_t)dlc_shape_count(&data->field->shape) *
                           dlc_dtype_bytes((dlc_dtype)data->field->dtype);
    loader->as_read = data->dtype == DLC_U8 && keeps_data(loader);
    loader->in_runs = is_simple(loader);
    return DLC_OK;
}

dlc_status dlc_loader_open(const dlc_loader_args *args, dlc_loader *loader) {
    *loader = (dlc_loader){.args = *args};
    DLC_TRY(dlc_samples_describe(args->ops, args->source, &loader->samples));
    DLC_TRY(open_fields(loader));
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

static void lock(dlc_loader *loader) {
    if (loader->has_lock)
        pthread_mutex_lock(&loader->lock);
}

static void unlock(dlc_loader *loader) {
    if (loader->has_lock)
        pthread_mutex_unlock(&loader->lock);
}

static dlc_status read_sample(dlc_loader *loader, int64_t index, void *into,
                              dlc_read_sample *read) {
    lock(loader);
    dlc_status status = dlc_samples_read_fields(&loader->samples, index, loader->wanted,
                                                into, read);
    unlock(loader);
    return status;
}

static int is_made(const dlc_loader *loader, int32_t i) {
    return !(loader->args.fields.unread >> i & 1) &&
           !(i == DLC_FIELD_DATA && loader->as_read);
}

/* A vector may have NaN for what is not known, but not where a net computes with it. */
static dlc_status check_input(const dlc_loader *loader, const dlc_load_scratch *scratch,
                              int32_t i) {
    const dlc_loaded_field *field = &loader->field[i];
    int is_input = field->field && loader->args.fields.inputs >> i & 1 &&
                   field->field->role == DLC_ROLE_VECTOR;
    return is_input ? dlc_samples_check_numbers(&loader->samples, &scratch->read,
                                                field->source, 0)
                    : DLC_OK;
}

dlc_status dlc_loader_load(dlc_loader *loader, dlc_load_scratch *scratch, int64_t index,
                           uint64_t position, void *const *to) {
    const dlc_loader_args *args = &loader->args;
    dlc_status status = read_sample(
        loader, index, loader->as_read ? to[DLC_FIELD_DATA] : NULL, &scratch->read);
    uint64_t draw = args->test ? (uint64_t)index : position;
    scratch->height = scratch->width = 0;
    for (int32_t i = 0; status == DLC_OK && i < loader->fields; i++)
        if (is_made(loader, i)) {
            status = check_input(loader, scratch, i);
            if (status == DLC_OK)
                status = dlc_load_field(loader, scratch, &loader->field[i], draw,
                                        to[i]);
        }
    return dlc_samples_name_failure(&loader->samples, index, status);
}

dlc_status dlc_loader_load_run(dlc_loader *loader, int32_t count, const int64_t *index,
                               void *const *to) {
    lock(loader);
    dlc_status status = dlc_samples_read_several(
        &loader->samples, count, index, to[DLC_FIELD_DATA], to[DLC_FIELD_LABEL]);
    unlock(loader);
    return status;
}
