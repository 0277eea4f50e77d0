/* Loads samples, lays out batches of them, and counts those that are skipped. */
#include "data/loader.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
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

static void lock_source(dlc_loader *loader) {
    if (loader->has_lock)
        pthread_mutex_lock(&loader->lock);
}

static void unlock_source(dlc_loader *loader) {
    if (loader->has_lock)
        pthread_mutex_unlock(&loader->lock);
}

static dlc_status read_sample(dlc_loader *loader, int64_t index, void *into,
                              dlc_read_sample *read) {
    lock_source(loader);
    dlc_status status = dlc_samples_read_fields(&loader->samples, index, loader->wanted,
                                                into, read);
    unlock_source(loader);
    return status;
}

static int is_made(const dlc_loader *loader, int32_t i) {
    return !(loader->args.fields.unread >> i & 1) &&
           !(i == DLC_FIELD_DATA && loader->as_read);
}

/* A vector may have NaN for what is not known, but not where a net computes with it. */
static dlc_status check_input_numbers(const dlc_loader *loader,
                                      const dlc_load_scratch *scratch, int32_t i) {
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
            status = check_input_numbers(loader, scratch, i);
            if (status == DLC_OK)
                status = dlc_load_field(loader, scratch, &loader->field[i], draw,
                                        to[i]);
        }
    return dlc_samples_name_failure(&loader->samples, index, status);
}

dlc_status dlc_loader_load_run(dlc_loader *loader, int32_t count, const int64_t *index,
                               void *const *to) {
    lock_source(loader);
    dlc_status status = dlc_samples_read_several(
        &loader->samples, count, index, to[DLC_FIELD_DATA], to[DLC_FIELD_LABEL]);
    unlock_source(loader);
    return status;
}

/* ---- Batches ----------------------------------------------------------------------
 */

#define LINE ((size_t)64) /* bytes of a cache line */

dlc_status dlc_batch_layout_make(const dlc_loader *loader, size_t samples,
                                 dlc_batch_layout *layout) {
    dlc_batch_layout made = {.loader = loader};
    for (int32_t i = 0; i < loader->fields; i++) {
        size_t bytes;
        made.offset[i] = made.bytes;
        if (__builtin_mul_overflow(samples, loader->field[i].bytes, &bytes) ||
            __builtin_add_overflow(made.bytes, bytes, &made.bytes) ||
            __builtin_add_overflow(made.bytes, LINE - 1, &made.bytes))
            return dlc_fail(DLC_ERR_NOMEM, "a batch of %zu samples is too large",
                            samples);
        made.bytes &= -LINE;
    }
    *layout = made;
    return DLC_OK;
}

void dlc_batch_find(const dlc_batch_layout *layout, void *base, int32_t sample,
                    void *to[DLC_NET_FIELDS]) {
    for (int32_t i = 0; i < layout->loader->fields; i++)
        to[i] = (char *)base + layout->offset[i] +
                (size_t)sample * layout->loader->field[i].bytes;
}

void dlc_batch_clear(const dlc_batch_layout *layout, void *const *to, int only_labels) {
    for (int32_t i = 0; i < layout->loader->fields; i++) {
        const dlc_loaded_field *field = &layout->loader->field[i];
        if (field->is_label || !only_labels)
            memset(to[i], field->is_label ? 0xff : 0, field->bytes);
    }
}

int dlc_batch_has_classes(const dlc_batch_layout *layout) {
    const dlc_loaded_field *label = &layout->loader->field[DLC_FIELD_LABEL];
    return layout->loader->fields > DLC_FIELD_LABEL && label->dtype == DLC_I32 &&
           label->shape.rank == 0;
}

/* ---- Skipped samples --------------------------------------------------------------
 */

enum { NAMED = 10 }; /* skipped samples that are warned of, each */

dlc_status dlc_skips_open(int64_t most, dlc_skips *skips) {
    *skips = (dlc_skips){.most = most};
    if (most <= 0)
        return DLC_OK;
    skips->index = dlc_alloc((size_t)most, sizeof *skips->index);
    if (!skips->index)
        return DLC_ERR_NOMEM;
    pthread_mutex_init(&skips->lock, NULL);
    skips->is_open = 1;
    return DLC_OK;
}

void dlc_skips_close(dlc_skips *skips) {
    if (!skips->is_open)
        return;
    if (skips->count > NAMED)
        dlc_warn("%" PRId64 " samples could not be read and were skipped",
                 skips->count);
    pthread_mutex_destroy(&skips->lock);
    dlc_free(skips->index);
    *skips = (dlc_skips){0};
}

static int is_skipped(const dlc_skips *skips, int64_t index) {
    for (int64_t i = 0; i < skips->count; i++)
        if (skips->index[i] == index)
            return 1;
    return 0;
}

/* Notes a new one; the lock is held. */
static dlc_status note_skipped(dlc_skips *skips, int64_t index) {
    if (skips->count == skips->most)
        return dlc_fail(DLC_ERR_DATA,
                        "%s; %" PRId64 " samples were skipped before it, and "
                        "max_skipped allows no more",
                        dlc_detail(), skips->count);
    skips->index[skips->count++] = index;
    if (skips->count <= NAMED)
        dlc_warn("%s; the sample is skipped", dlc_detail());
    if (skips->count == NAMED)
        dlc_warn("more samples that cannot be read are skipped without a word");
    return DLC_OK;
}

dlc_status dlc_skips_advise(void) {
    return dlc_fail(DLC_ERR_DATA,
                    "%s; `on_error = skip`, beside `source`, skips samples that cannot "
                    "be read",
                    dlc_detail());
}

int dlc_skips_have(dlc_skips *skips, int64_t index) {
    if (!skips->is_open)
        return 0;
    pthread_mutex_lock(&skips->lock);
    int is = is_skipped(skips, index);
    pthread_mutex_unlock(&skips->lock);
    return is;
}

dlc_status dlc_skips_add(dlc_skips *skips, int64_t index) {
    if (!skips->is_open)
        return skips->most < 0 ? DLC_ERR_DATA : dlc_skips_advise();
    pthread_mutex_lock(&skips->lock);
    dlc_status status = is_skipped(skips, index) ? DLC_OK : note_skipped(skips, index);
    pthread_mutex_unlock(&skips->lock);
    return status;
}
