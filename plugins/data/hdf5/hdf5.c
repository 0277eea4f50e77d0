/* The data source "hdf5": datasets with a row for each sample, in one file or several.
 *
 * libhdf5 is asked, in a process of its own, where the numbers of each dataset are;
 * rows are then read from there, by any number of threads, without libhdf5 and its one
 * lock.
 */
#include <stdio.h>
#include <string.h>

#include "../shared/fields.h"
#include "chunks.h"
#include "parts.h"

const dlc_host *host;

struct dlc_source {
    const char *pattern;
    parts parts;
    chunk_cache cache[DLC_FIELDS_MAX]; /* of each field */
    fields all;
};

static dlc_status hdf5_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* ---- Datasets ------------------------------------------------------------------ */

/* Compares all but the number of rows. */
static int is_like(const array *one, const array *other) {
    return one->kind == other->kind && one->bytes == other->bytes &&
           one->is_big_endian == other->is_big_endian && one->rank == other->rank &&
           array_row_count(one) == array_row_count(other) &&
           memcmp(one->dims + 1, other->dims + 1,
                  (size_t)(one->rank - 1) * sizeof *one->dims) == 0;
}

static dlc_status refuse_other(const part_file *at, const part_file *first,
                               int32_t field, const char *name) {
    char one[128], other[128];
    array_describe(&at->at[field].of, one, sizeof one);
    array_describe(&first->at[field].of, other, sizeof other);
    return host->fail(DLC_ERR_DATA,
                      "%s: %s has another type or shape (%s) than in %s (%s); all "
                      "files need the same one",
                      at->path, name, one, first->path, other);
}

/* Finds the dataset of a field in one file. */
static dlc_status find_in_part(dlc_source *source, int32_t p, int32_t field,
                               const char *name, int *found) {
    part_file *at = &source->parts.file[p];
    const part_file *first = &source->parts.file[0];
    layout_free(&at->at[field]); /* of a default that was not there */
    dlc_status status = layout_ask(&at->in, name, &at->at[field], found);
    if (status != DLC_OK || !*found)
        return status;
    int64_t rows = at->at[field].of.dims[0];
    if (at->count && rows != at->count)
        return host->fail(DLC_ERR_DATA,
                          "%s: %s has %lld rows, but another dataset has %lld",
                          at->path, name, (long long)rows, (long long)at->count);
    if (!is_like(&at->at[field].of, &first->at[field].of))
        return refuse_other(at, first, field, name);
    at->count = rows;
    return DLC_OK;
}

static dlc_status hdf5_find(dlc_source *source, int32_t field, const char *name,
                            array *made, int *found) {
    int64_t rows = 0;
    for (int32_t p = 0; p < source->parts.count; p++) {
        part_file *at = &source->parts.file[p];
        dlc_status status = find_in_part(source, p, field, name, found);
        if (status == DLC_OK && !*found && p > 0)
            status = host->fail(DLC_ERR_DATA,
                                "%s: there is no dataset %s, which is in %s", at->path,
                                name, source->parts.file[0].path);
        if (status != DLC_OK || !*found)
            return status;
        at->first = rows;
        if (__builtin_add_overflow(rows, at->count, &rows))
            return host->fail(DLC_ERR_DATA, "%s: there are too many rows", at->path);
    }
    *made = source->parts.file[0].at[field].of;
    made->dims[0] = rows;
    return DLC_OK;
}

/* Reads rows that are all in one file. */
static dlc_status read_rows(dlc_source *source, const part_file *at, int32_t field,
                            int64_t first, int64_t count, unsigned char *to) {
    const layout *from = &at->at[field];
    int64_t bytes = array_row_bytes(&from->of);
    dlc_status status = DLC_OK;
    if (from->kind == IN_ONE_PIECE)
        return file_read(&at->in, from->address + first * bytes, to,
                         (size_t)(count * bytes));
    if (from->kind == IN_HEADER) {
        memcpy(to, from->numbers + first * bytes, (size_t)(count * bytes));
        return DLC_OK;
    }
    for (int64_t i = 0; status == DLC_OK && i < count; i++)
        status = chunks_read_row(&source->cache[field], &at->in,
                                 source->all.name[field], from, first + i,
                                 to + i * bytes);
    return status;
}

static dlc_status hdf5_read_rows(dlc_source *source, int32_t field, int64_t first,
                                 int64_t count, void *to) {
    int64_t bytes = array_row_bytes(&source->all.of[field]), done = 0;
    dlc_status status = DLC_OK;
    while (status == DLC_OK && done < count) {
        const part_file *at = parts_find(&source->parts, first + done);
        int64_t own = first + done - at->first, left = at->count - own;
        left = left < count - done ? left : count - done;
        status = read_rows(source, at, field, own, left,
                           (unsigned char *)to + done * bytes);
        done += left;
    }
    return status;
}

/* ---- Operations ---------------------------------------------------------------- */

static void hdf5_close(dlc_source *source) {
    if (!source)
        return;
    fields_close(&source->all);
    parts_close(&source->parts);
    for (int f = 0; f < DLC_FIELDS_MAX; f++)
        chunk_cache_close(&source->cache[f]);
    host->free(source);
}

static dlc_status hdf5_open(const dlc_data_args *args, dlc_source **source) {
    static const array_reader reader = {hdf5_find, hdf5_read_rows, NULL};
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    for (int f = 0; f < DLC_FIELDS_MAX; f++)
        chunk_cache_open(&made->cache[f]);
    made->pattern = host->get_string(args->settings, "files");
    made->all = (fields){.reader = &reader, .source = made, .path = made->pattern};
    dlc_status status = parts_open(made->pattern, &made->parts);
    if (status == DLC_OK)
        status = fields_open(args, &made->all);
    if (status != DLC_OK) {
        hdf5_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status hdf5_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = source->all.samples;
    info->fields = source->all.field;
    info->field_count = source->all.count;
    return DLC_OK;
}

static dlc_status hdf5_read_sample(dlc_source *source, dlc_sample *sample) {
    return fields_read(&source->all, sample);
}

static void hdf5_name(dlc_source *source, int64_t index, char *text, size_t room) {
    const part_file *at = parts_find(&source->parts, index);
    (void)snprintf(text, room, "%s: row %lld", at->path,
                   (long long)(index - at->first));
}

/* ---- Descriptor ---------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("files",
                      "an HDF5 file, a pattern of several (train/*.h5), or a list of "
                      "them whose name ends with .txt"),
    ARRAY_OPTIONS("data", "label", "name of the dataset"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = hdf5_open,
    .close = hdf5_close,
    .describe = hdf5_describe,
    .read_sample = hdf5_read_sample,
    .name = hdf5_name,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "hdf5",
     .help = "datasets of HDF5 files",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("hdf5", DLC_VERSION, "BSD-2-Clause", features, hdf5_load);
