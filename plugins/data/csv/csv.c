/* The data source "csv": one row a sample. Columns give the class, several classes, a
 * vector of numbers, the pixels of an image, the path of an image file, or boxes around
 * objects.
 *
 * open goes through the file once and remembers where each row begins and its class;
 * everything else is read when it is needed. */
#include <dlcore/data.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cells.h"
#include "columns.h"

enum { IMAGE, LABEL, LABELS, VECTOR, BOXES, FIELDS };

const dlc_host *host;

/* Where a row is, and its class. */
typedef struct entry {
    int64_t begin, line;
    int32_t bytes, label;
} entry;

struct dlc_source {
    table table;
    const dlc_settings *settings;
    char delimiter;
    int has_header;
    int32_t columns; /* of each row; 0: no row was seen */
    growing entries;
    int32_t labels;
    char *folder; /* owned; of the image files, with a slash behind it */

    /* The columns of each kind of field, and the number of the field; -1: none. */
    columns from[FIELDS];
    int32_t number[FIELDS];
    int has_paths; /* images are files */
    dlc_field field[FIELDS];
    int32_t fields;
};

static dlc_status csv_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static int64_t count_of(const dlc_source *source) {
    return (int64_t)(source->entries.used / sizeof(entry));
}

static const entry *entry_at(const dlc_source *source, int64_t index) {
    return (const entry *)(const void *)source->entries.bytes + index;
}

static void csv_close(dlc_source *source) {
    if (!source)
        return;
    for (int i = 0; i < FIELDS; i++)
        growing_free(&source->from[i].list);
    row_free(&source->table.header);
    growing_free(&source->entries);
    classes_free(&source->table.known);
    host->free(source->folder);
    file_close(&source->table.in);
    host->free(source);
}

/* ---- Opening ----------------------------------------------------------------- */

/* The columns of a kind of field; `option` is the setting that names them. */
static dlc_status find_columns(dlc_source *source, int kind, const char *option) {
    const char *text = host->get_string(source->settings, option);
    return text ? columns_read(text, &source->table.header, source->columns,
                               host->where(source->settings, option),
                               &source->from[kind])
                : DLC_OK;
}

static dlc_status check_columns(const dlc_source *source) {
    int all = 0;
    for (int i = 0; i < FIELDS; i++)
        all += columns_count(&source->from[i]);
    if (columns_count(&source->from[LABEL]) > 1)
        return host->fail(DLC_ERR_CONFIG, "%s: label: it is one column; see `labels`",
                          host->where(source->settings, "label"));
    if (source->has_paths && columns_count(&source->from[IMAGE]) != 1)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: path: it is one column, and instead of `image`",
                          host->where(source->settings, "path"));
    if (columns_count(&source->from[BOXES]) % DLC_BOX_VALUES)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: boxes: there are %d columns, but each box has five: "
                          "class, x0, y0, x1, y1",
                          host->where(source->settings, "boxes"),
                          (int)columns_count(&source->from[BOXES]));
    if (!all)
        return host->fail(DLC_ERR_CONFIG,
                          "csv needs a column for something: `label`, `labels`, "
                          "`vector`, `boxes`, `image` or `path`");
    return DLC_OK;
}

/* The first row says how many columns there are, and how they are called. */
static dlc_status begin_table(dlc_source *source, row *first) {
    source->columns = row_count(first);
    if (source->has_header) {
        source->table.header = *first;
        *first = (row){.line = first->line};
    }
    source->has_paths = host->get_string(source->settings, "path") != NULL;
    dlc_status status = find_columns(source, IMAGE, "image");
    if (status == DLC_OK)
        status = find_columns(source, IMAGE, "path");
    if (status == DLC_OK)
        status = find_columns(source, LABEL, "label");
    if (status == DLC_OK)
        status = find_columns(source, LABELS, "labels");
    if (status == DLC_OK)
        status = find_columns(source, VECTOR, "vector");
    if (status == DLC_OK)
        status = find_columns(source, BOXES, "boxes");
    return status == DLC_OK ? check_columns(source) : status;
}

static dlc_status check_count(const dlc_source *source, const row *at) {
    if (row_count(at) == source->columns)
        return DLC_OK;
    return host->fail(DLC_ERR_DATA,
                      "%s:%lld: it has %d cells, but the first row has %d",
                      source->table.in.path, (long long)at->line, (int)row_count(at),
                      (int)source->columns);
}

static dlc_status add_row(void *context, row *at, int64_t begin, int64_t bytes) {
    dlc_source *source = context;
    entry added = {.begin = begin, .line = at->line, .bytes = (int32_t)bytes};
    dlc_status status = DLC_OK;
    if (!source->columns) {
        status = begin_table(source, at);
        if (status != DLC_OK || source->has_header)
            return status;
    }
    status = check_count(source, at);
    if (status == DLC_OK && columns_count(&source->from[LABEL]))
        status = cell_label(&source->table, at, columns_at(&source->from[LABEL], 0),
                            &added.label);
    if (added.label >= source->labels)
        source->labels = added.label + 1;
    return status == DLC_OK ? growing_add(&source->entries, &added, sizeof added)
                            : status;
}

static dlc_status read_delimiter(dlc_source *source) {
    const char *text = host->get_string(source->settings, "delimiter");
    source->delimiter = strcmp(text, "tab") == 0 ? '\t' : text[0];
    if (source->delimiter == '\t' || (text[0] && !text[1] && !strchr("\"\r\n", *text)))
        return DLC_OK;
    return host->fail(DLC_ERR_CONFIG, "%s: delimiter = %.20s: it is one character",
                      host->where(source->settings, "delimiter"), text);
}

/* ---- Fields ------------------------------------------------------------------ */

static void add_field(dlc_source *source, int kind, dlc_role role, const char *name,
                      dlc_dtype dtype) {
    dlc_field *made = &source->field[source->fields];
    source->number[kind] = -1;
    if (!columns_count(&source->from[kind]))
        return;
    *made = (dlc_field){.size = sizeof *made,
                        .role = (uint32_t)role,
                        .dtype = (uint32_t)dtype,
                        .name = name,
                        .shape = {1, {columns_count(&source->from[kind])}}};
    source->number[kind] = source->fields++;
}

/* Images have `shape`, or one channel a column. */
static dlc_status shape_image(dlc_source *source) {
    dlc_field *image = &source->field[source->number[IMAGE]];
    const int64_t *dims;
    size_t rank = host->get_ints(source->settings, "shape", &dims);
    int64_t pixels = image->shape.dims[0], count = 1;
    int grey = host->get_bool(source->settings, "grey");
    image->shape = (dlc_shape){3, {pixels, 1, 1}};
    if (source->has_paths) {
        image->flags = DLC_FIELD_ENCODED;
        image->dtype = DLC_U8;
        image->shape = (dlc_shape){3, {grey ? 1 : 3, 0, 0}};
        return DLC_OK;
    }
    for (size_t i = 0; i < rank && i < 3; i++) {
        image->shape.dims[i] = dims[i];
        count = count > pixels ? count : count * dims[i];
    }
    if (rank && (rank != 3 || count != pixels))
        return host->fail(DLC_ERR_CONFIG,
                          "%s: shape: channels, height and width, whose product is the "
                          "number of columns, %lld",
                          host->where(source->settings, "shape"), (long long)pixels);
    return DLC_OK;
}

/* Boxes have the classes that have names, if there are any. */
static void shape_boxes(dlc_source *source) {
    dlc_field *boxes = &source->field[source->number[BOXES]];
    int64_t count = boxes->shape.dims[0] / DLC_BOX_VALUES;
    boxes->shape = (dlc_shape){2, {count, DLC_BOX_VALUES}};
    boxes->classes = source->table.known.count;
    if (boxes->classes)
        boxes->class_names = (const char *const *)source->table.known.name;
}

static dlc_status make_fields(dlc_source *source) {
    add_field(source, IMAGE, DLC_ROLE_IMAGE, "image", DLC_F32);
    add_field(source, LABEL, DLC_ROLE_CLASS, "label", DLC_I32);
    add_field(source, LABELS, DLC_ROLE_CLASSES, "labels", DLC_U8);
    add_field(source, VECTOR, DLC_ROLE_VECTOR, "vector", DLC_F32);
    add_field(source, BOXES, DLC_ROLE_BOXES, "boxes", DLC_F32);
    if (source->number[BOXES] >= 0)
        shape_boxes(source);
    for (int kind = LABEL; kind <= LABELS; kind++) {
        int32_t labels = kind == LABEL ? source->labels
                                       : columns_count(&source->from[kind]);
        if (source->number[kind] < 0)
            continue;
        dlc_field *at = &source->field[source->number[kind]];
        dlc_status status = classes_check(&source->table.known, labels,
                                          count_of(source), source->table.in.path);
        if (status != DLC_OK)
            return status;
        at->classes = source->table.known.count && kind == LABEL
                          ? source->table.known.count
                          : labels;
        if (at->classes == source->table.known.count)
            at->class_names = (const char *const *)source->table.known.name;
    }
    return source->number[IMAGE] >= 0 ? shape_image(source) : DLC_OK;
}

/* Paths of image files begin at `folder`, or where the CSV file is. */
static dlc_status find_folder(dlc_source *source) {
    const char *set = host->get_string(source->settings, "folder");
    const char *slash = strrchr(source->table.in.path, '/');
    const char *from = set ? set : slash ? source->table.in.path : ".";
    size_t length = set || !slash ? strlen(from) : (size_t)(slash - from);
    source->folder = host->alloc(length + 2);
    if (!source->folder)
        return DLC_ERR_NOMEM;
    memcpy(source->folder, from, length);
    source->folder[length] = '/';
    return DLC_OK;
}

static dlc_status read_table(dlc_source *source) {
    dlc_status status = rows_walk(&source->table.in, source->delimiter, add_row,
                                  source);
    if (status == DLC_OK && count_of(source) == 0)
        status = host->fail(DLC_ERR_DATA, "%s: it has no rows%s", source->table.in.path,
                            source->has_header ? " below its header" : "");
    return status == DLC_OK ? make_fields(source) : status;
}

static dlc_status csv_open(const dlc_data_args *args, dlc_source **source) {
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->table.in.fd = -1;
    made->settings = args->settings;
    made->has_header = host->get_bool(args->settings, "header");
    dlc_status status = read_delimiter(made);
    if (status == DLC_OK)
        status = file_open(host->get_string(args->settings, "file"), &made->table.in);
    if (status == DLC_OK)
        status = find_folder(made);
    if (status == DLC_OK)
        status = classes_know(args, &made->table.known);
    if (status == DLC_OK)
        status = read_table(made);
    if (status != DLC_OK) {
        csv_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status csv_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = count_of(source);
    info->fields = source->field;
    info->field_count = source->fields;
    return DLC_OK;
}

/* ---- Reading ----------------------------------------------------------------- */

static void csv_name(dlc_source *source, int64_t index, char *text, size_t room) {
    (void)snprintf(text, room, "%s:%lld", source->table.in.path,
                   (long long)entry_at(source, index)->line);
}

/* Reads an image file into a value. */
static dlc_status read_image(const dlc_source *source, const row *at, int32_t column,
                             dlc_sample *sample) {
    const char *path = row_cell(at, column)->text;
    const char *folder = path[0] == '/' ? "" : source->folder;
    size_t room = strlen(folder) + strlen(path) + 1;
    char *all = host->alloc(room);
    if (!all)
        return DLC_ERR_NOMEM;
    (void)snprintf(all, room, "%s%s", folder, path);
    data_file image = {.fd = -1};
    dlc_status status = file_open(all, &image);
    void *to = status == DLC_OK ? sample->memory(sample, source->number[IMAGE],
                                                 (uint64_t)image.bytes)
                                : NULL;
    if (status == DLC_OK)
        status = to ? file_read(&image, 0, to, (size_t)image.bytes) : DLC_ERR_NOMEM;
    file_close(&image);
    host->free(all);
    return status;
}

/* Reads whether a sample is of a class: 1 or 0; -1 or NaN if that is not known. */
static dlc_status read_flag(const table *of, const row *at, int32_t column,
                            uint8_t *flag) {
    float number = 0;
    dlc_status status = cell_number(of, at, column, 1, &number);
    if (status != DLC_OK)
        return status;
    if (isnan(number))
        number = DLC_LABEL_NONE;
    if (number != 0 && number != 1 && number != DLC_LABEL_NONE)
        return cell_refuse(of, at, column, "is not 1, 0 or -1");
    *flag = (uint8_t)(int)number;
    return DLC_OK;
}

/* Numbers beside an image are what a net compares with, where NaN does not count; a net
 * that begins with them needs all of them. */
static dlc_status read_numbers(const dlc_source *source, const row *at, int kind,
                               dlc_sample *sample) {
    const columns *from = &source->from[kind];
    int32_t count = columns_count(from);
    int may_be_nan = kind == VECTOR && source->number[IMAGE] >= 0;
    size_t bytes = kind == LABELS ? 1 : sizeof(float);
    char *to = sample->memory(sample, source->number[kind], (size_t)count * bytes);
    dlc_status status = to ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < count; i++, to += bytes)
        status = kind == LABELS
                     ? read_flag(&source->table, at, columns_at(from, i), (uint8_t *)to)
                     : cell_number(&source->table, at, columns_at(from, i), may_be_nan,
                                   (float *)(void *)to);
    return status;
}

/* Reads the columns first .. first + 4 of a box; one without a class is not used. */
static dlc_status read_box(const dlc_source *source, const row *at, int32_t first,
                           float *box) {
    const columns *from = &source->from[BOXES];
    int32_t column = columns_at(from, first), label = -1;
    const char *text = row_cell(at, column)->text;
    text += strspn(text, " ");
    dlc_status status = DLC_OK;
    if (*text)
        status = cell_label(&source->table, at, column, &label);
    box[DLC_BOX_CLASS] = (float)label;
    for (int32_t i = DLC_BOX_X0; status == DLC_OK && i < DLC_BOX_VALUES; i++) {
        box[i] = 0;
        if (label >= 0)
            status = cell_number(&source->table, at, columns_at(from, first + i), 0,
                                 &box[i]);
    }
    return status;
}

static dlc_status read_boxes(const dlc_source *source, const row *at,
                             dlc_sample *sample) {
    int32_t count = columns_count(&source->from[BOXES]);
    float *to = sample->memory(sample, source->number[BOXES],
                               (size_t)count * sizeof *to);
    dlc_status status = to ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < count; i += DLC_BOX_VALUES)
        status = read_box(source, at, i, to + i);
    return status;
}

static dlc_status read_kinds(const dlc_source *source, const row *at,
                             dlc_sample *sample) {
    dlc_status status = check_count(source, at);
    for (int kind = 0; status == DLC_OK && kind < FIELDS; kind++) {
        int32_t f = source->number[kind];
        if (f < 0 || kind == LABEL || !(sample->wanted >> f & 1))
            continue;
        if (kind == IMAGE && source->has_paths)
            status = read_image(source, at, columns_at(&source->from[IMAGE], 0),
                                sample);
        else if (kind == BOXES)
            status = read_boxes(source, at, sample);
        else
            status = read_numbers(source, at, kind, sample);
    }
    return status;
}

static void trim_newline(growing *text) {
    for (const char *at = "\n\r"; *at; at++)
        if (text->used && text->bytes[text->used - 1] == *at)
            text->used--;
}

static dlc_status csv_read_sample(dlc_source *source, dlc_sample *sample) {
    const entry *at = entry_at(source, sample->index);
    int32_t label = source->number[LABEL];
    row one = {.line = at->line};
    if (label >= 0) {
        sample->value[label].data = &at->label;
        sample->value[label].bytes = sizeof at->label;
        if (sample->wanted == 1u << label)
            return DLC_OK;
    }
    dlc_status status = growing_add(&one.text, NULL, (size_t)at->bytes);
    if (status == DLC_OK)
        status = file_read(&source->table.in, at->begin, one.text.bytes,
                           (size_t)at->bytes);
    trim_newline(&one.text);
    if (status == DLC_OK)
        status = row_split(source->table.in.path, source->delimiter, &one);
    if (status == DLC_OK)
        status = read_kinds(source, &one, sample);
    row_free(&one);
    return status;
}

/* ---- Descriptor -------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("file", "the CSV file"),
    DLC_STRING("delimiter", ",", "the character between cells, or \"tab\""),
    DLC_BOOL("header", "true", "the first row has the names of the columns"),
    DLC_STRING(
        "label", NULL,
        "column of the class, a number from 0 or a name of `classes`, or -1, nan or "
        "nothing, which do not count; columns have names, if there is a header, and "
        "numbers from 1"),
    DLC_STRING(
        "labels", NULL,
        "columns with a 1 or 0 for each class, where a sample may be of several; -1, nan "
        "and nothing do not count"),
    DLC_STRING(
        "vector", NULL,
        "columns of numbers, such as those of a regression: \"age, 5, x1..x9\"; beside "
        "an image, nan and empty cells do not count"),
    DLC_STRING(
        "boxes", NULL,
        "columns of boxes around objects, five for each: class, x0, y0, x1, y1, in "
        "pixels; a box without a class is none"),
    DLC_STRING("image", NULL, "columns of the pixels of an image"),
    DLC_INTS("shape", NULL, 1, 1 << 20,
             "channels, height and width of that image; default: one pixel, with a "
             "channel for each column"),
    DLC_STRING("path", NULL, "column of the path of an image file, instead of `image`"),
    DLC_PATH("folder", NULL, "where these paths begin; default: where the file is"),
    DLC_BOOL("grey", "false",
             "image files have one channel, the brightness, and not three"),
    DLC_STRING("classes", NULL,
               "names of the classes in the order of their labels, joined by commas; "
               "default: those of the training data"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = csv_open,
    .close = csv_close,
    .describe = csv_describe,
    .read_sample = csv_read_sample,
    .name = csv_name,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "csv",
     .help = "tables of numbers and labels, or of image files and labels",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("csv", DLC_VERSION, "BSD-2-Clause", features, csv_load);
