/* Finds and reads arrays that are in shards, a row a file. */
#include "arrays.h"

#include <string.h>

#include "../shared/npy_header.h"

/* Where the row of a sample is. */
typedef struct place {
    int64_t begin, bytes;
    int32_t shard, boxes; /* how many boxes are in it, if it has boxes */
} place;

/* A file that has been seen, before it is known which arrays are fields. */
typedef struct part {
    place at;
    int32_t name; /* where it begins, in the names */
    int64_t sample;
} part;

int is_array(const char *ending) {
    const char *last = strrchr(ending, '.');
    return last > ending && strcmp(last, ARRAY_ENDING) == 0;
}

/* Where a name begins, in the names, each of which ends with a zero byte; -1: it is
 * new. */
static int32_t find_name(const arrays *in, const char *name, size_t length) {
    for (size_t at = 0; at < in->names.used; at += strlen(in->names.bytes + at) + 1)
        if (strncmp(in->names.bytes + at, name, length) == 0 &&
            in->names.bytes[at + length] == '\0')
            return (int32_t)at;
    return -1;
}

dlc_status arrays_add(arrays *to, const char *name, size_t length, const member *file,
                      int32_t shard, int64_t sample) {
    enum { NAMES_MOST = 4096 }; /* bytes; more are no names of fields, and left out */
    part made = {.at = {file->begin, file->bytes, shard, 0},
                 .name = find_name(to, name, length),
                 .sample = sample};
    dlc_status status = DLC_OK;
    if (made.name < 0) {
        if (to->names.used + length > NAMES_MOST)
            return DLC_OK;
        made.name = (int32_t)to->names.used;
        status = growing_add(&to->names, name, length);
        if (status == DLC_OK)
            status = growing_add(&to->names, "", 1);
    }
    return status == DLC_OK ? growing_add(&to->parts, &made, sizeof made) : status;
}

/* ---- Rows -------------------------------------------------------------------- */

static dlc_status read_header(const arrays *of, const char *name, const place *at,
                              array *made, int64_t *data) {
    return npy_header_read(&of->shard[at->shard], name, at->begin, at->bytes, made,
                           data);
}

/* The files of a name, one of each sample. */
static dlc_status collect(const arrays *of, int32_t name, growing *column) {
    const part *seen = (const part *)(const void *)of->parts.bytes;
    size_t count = of->parts.used / sizeof *seen;
    int64_t next = 0;
    dlc_status status = DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < count; i++) {
        if (seen[i].name != name)
            continue;
        if (seen[i].sample != next)
            break;
        status = growing_add(column, &seen[i].at, sizeof seen[i].at);
        next++;
    }
    if (status != DLC_OK || next == of->samples)
        return status;
    return host->fail(DLC_ERR_DATA,
                      "%s: sample %lld has no file, or two files, KEY.%s" ARRAY_ENDING,
                      of->all.path, (long long)next, of->names.bytes + name);
}

static int has_boxes(const arrays *of, int32_t field) {
    return of->all.field[field].role == DLC_ROLE_BOXES;
}

/* Counts the boxes of each sample; *most becomes the largest number, or 1. */
static dlc_status count_boxes(const arrays *of, int32_t field, const char *name,
                              int64_t *most) {
    place *at = (place *)(void *)of->column[field].bytes;
    dlc_status status = DLC_OK;
    *most = 1;
    for (int64_t i = 0; status == DLC_OK && i < of->samples; i++) {
        array row = {0};
        int64_t data;
        status = read_header(of, name, &at[i], &row, &data);
        if (status == DLC_OK && (row.rank != 2 || row.dims[0] > INT32_MAX))
            return host->fail(DLC_ERR_DATA,
                              "%s: %s of sample %lld: boxes are rows of five numbers: "
                              "class, x0, y0, x1, y1",
                              of->shard[at[i].shard].path, name, (long long)i);
        at[i].boxes = (int32_t)row.dims[0];
        *most = row.dims[0] > *most ? row.dims[0] : *most;
    }
    return status;
}

static dlc_status find(dlc_source *source, int32_t field, const char *name, array *made,
                       int *found) {
    arrays *of = (arrays *)(void *)source;
    growing *column = &of->column[field];
    int32_t at = find_name(of, name, strlen(name));
    array row = {0};
    int64_t data = 0;
    *found = at >= 0;
    if (at < 0)
        return DLC_OK;
    dlc_status status = collect(of, at, column);
    if (status == DLC_OK)
        status = read_header(of, name, (const place *)(const void *)column->bytes, &row,
                             &data);
    if (status != DLC_OK)
        return status;
    if (row.rank == ARRAY_RANK_MOST)
        return host->fail(DLC_ERR_DATA, "%s: %s has too many dimensions", of->all.path,
                          name);
    if (has_boxes(of, field))
        status = count_boxes(of, field, name, &row.dims[0]);
    if (status != DLC_OK)
        return status;
    memmove(row.dims + 1, row.dims, (size_t)row.rank * sizeof *row.dims);
    row.dims[0] = of->samples;
    row.rank++;
    *made = row;
    return DLC_OK;
}

/* The array, if all of its rows were as this one. */
static array array_of(const arrays *of, int32_t field, const place *at) {
    array all = of->all.of[field];
    if (has_boxes(of, field))
        all.dims[1] = at->boxes;
    return all;
}

static int is_row_of(const array *row, const array *all) {
    return row->kind == all->kind && row->bytes == all->bytes &&
           row->is_big_endian == all->is_big_endian && row->rank == all->rank - 1 &&
           memcmp(row->dims, all->dims + 1, (size_t)row->rank * sizeof *row->dims) == 0;
}

static dlc_status refuse_other(const arrays *of, int32_t field, int64_t sample,
                               const array *row) {
    const place *at = (const place *)(const void *)of->column[field].bytes + sample;
    array first = of->all.of[field];
    char one[128], other[128];
    first.rank--;
    memmove(first.dims, first.dims + 1, (size_t)first.rank * sizeof *first.dims);
    array_describe(row, one, sizeof one);
    array_describe(&first, other, sizeof other);
    return host->fail(DLC_ERR_DATA,
                      "%s: %s of sample %lld has another shape or type (%s) than that "
                      "of the first sample (%s)",
                      of->shard[at->shard].path, of->all.name[field], (long long)sample,
                      one, other);
}

static dlc_status read_row(const arrays *of, int32_t field, int64_t sample, void *to) {
    const place *at = (const place *)(const void *)of->column[field].bytes + sample;
    const array all = array_of(of, field, at);
    const char *name = of->all.name[field];
    array row = {0};
    int64_t data = 0;
    dlc_status status = read_header(of, name, at, &row, &data);
    if (status != DLC_OK)
        return status;
    if (!is_row_of(&row, &all))
        return refuse_other(of, field, sample, &row);
    return file_read(&of->shard[at->shard], data, to, (size_t)array_row_bytes(&all));
}

static int64_t boxes_of(dlc_source *source, int32_t field, int64_t sample) {
    const arrays *of = (const arrays *)(const void *)source;
    return ((const place *)(const void *)of->column[field].bytes)[sample].boxes;
}

static dlc_status read_rows(dlc_source *source, int32_t field, int64_t first,
                            int64_t count, void *to) {
    const arrays *of = (const arrays *)(const void *)source;
    size_t bytes = (size_t)array_row_bytes(&of->all.of[field]);
    dlc_status status = DLC_OK;
    for (int64_t i = 0; status == DLC_OK && i < count; i++)
        status = read_row(of, field, first + i, (char *)to + (size_t)i * bytes);
    return status;
}

/* ---- Opening ------------------------------------------------------------------- */

dlc_status arrays_open(arrays *of, const dlc_data_args *args, const data_file *shard,
                       int64_t samples) {
    static const array_reader reader = {find, read_rows, boxes_of};
    of->all.reader = &reader;
    of->all.source = (dlc_source *)(void *)of;
    of->all.keeps_names = 1;
    of->shard = shard;
    of->samples = samples;
    dlc_status status = fields_open(args, &of->all);
    growing_free(&of->names);
    growing_free(&of->parts);
    return status;
}

void arrays_free(arrays *of) {
    fields_close(&of->all);
    growing_free(&of->names);
    growing_free(&of->parts);
    for (int32_t f = 0; f < DLC_FIELDS_MAX; f++)
        growing_free(&of->column[f]);
}
