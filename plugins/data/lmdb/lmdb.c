/* The data source "lmdb": databases as Caffe's tools write them, with a Datum for each
 * sample: raw pixels, bytes or floats, or an encoded image file.
 *
 * open goes through the tree and remembers where each value is, so that samples can be
 * read in any order and by several threads; nothing else is kept in memory. The
 * database must not change meanwhile. */
#include <dlcore/data.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../shared/classes.h"
#include "../shared/growing.h"
#include "datum.h"
#include "tree.h"

enum { IMAGE, LABEL, FIELDS };
#define SIDE_MOST (1 << 24)

const dlc_host *host;

struct dlc_source {
    char *path; /* owned */
    data_file in;
    growing values; /* of tree_value */
    classes known;
    dlc_field field[FIELDS];
    int is_encoded;
};

static dlc_status lmdb_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static void lmdb_close(dlc_source *source) {
    if (!source)
        return;
    growing_free(&source->values);
    classes_free(&source->known);
    file_close(&source->in);
    host->free(source->path);
    host->free(source);
}

static int64_t count_of(const dlc_source *source) {
    return (int64_t)(source->values.used / sizeof(tree_value));
}

static const tree_value *value_at(const dlc_source *source, int64_t index) {
    return (const tree_value *)(const void *)source->values.bytes + index;
}

/* ---- Samples ----------------------------------------------------------------- */

static void lmdb_name(dlc_source *source, int64_t index, char *text, size_t room) {
    const tree_value *at = value_at(source, index);
    char key[512] = "";
    size_t bytes = at->key_bytes < sizeof key ? at->key_bytes : sizeof key - 1;
    if (file_read(&source->in, at->key, key, bytes) != DLC_OK)
        bytes = 0;
    for (size_t i = 0; i < bytes; i++) /* keys may be anything */
        if ((unsigned char)key[i] < ' ' || key[i] == '\x7f')
            key[i] = '?';
    (void)snprintf(text, room, "%s: %.*s", source->path, (int)bytes, key);
}

static dlc_status fail_sample(dlc_source *source, int64_t index, const char *what) {
    char name[1024];
    lmdb_name(source, index, name, sizeof name);
    return host->fail(DLC_ERR_DATA, "%s: %s", name, what);
}

static dlc_status check_label(dlc_source *source, int64_t index, int64_t label) {
    char name[1024];
    if (label < DLC_LABEL_NONE || label > LABEL_MOST)
        return fail_sample(source, index, "its label is not the number of a class");
    lmdb_name(source, index, name, sizeof name);
    return classes_check(&source->known, (int32_t)label + 1, count_of(source), name);
}

/* Reads a Datum into new memory, which is the caller's. */
static dlc_status read_datum(dlc_source *source, int64_t index, unsigned char **room,
                             const unsigned char **message, datum *made) {
    const tree_value *at = value_at(source, index);
    unsigned char *memory = host->alloc((size_t)at->bytes + TREE_HEADER);
    if (!memory)
        return DLC_ERR_NOMEM;
    dlc_status status = tree_read(&source->in, at, memory, message);
    if (status == DLC_OK) {
        const char *wrong = datum_parse(*message, at->bytes, NULL, made);
        if (wrong)
            status = fail_sample(source, index, wrong);
    }
    if (status == DLC_OK)
        status = check_label(source, index, made->label);
    if (status != DLC_OK) {
        host->free(memory);
        return status;
    }
    *room = memory;
    return DLC_OK;
}

/* The number of pixels times channels; 0 if a Datum has none. */
static int64_t count_numbers(const datum *of) {
    int64_t count;
    if (of->channels < 1 || of->height < 1 || of->width < 1 || of->height > SIDE_MOST ||
        of->width > SIDE_MOST ||
        __builtin_mul_overflow((int64_t)of->height * of->width, of->channels, &count))
        return 0;
    return count;
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status add_value(void *context, const tree_value *at) {
    dlc_source *source = context;
    return growing_add(&source->values, at, sizeof *at);
}

/* `path` is the file, or the folder that it is in. */
static dlc_status find_file(const dlc_settings *settings, dlc_source *source) {
    static const char name[] = "/data.mdb";
    const char *path = host->get_string(settings, "path");
    struct stat info;
    int is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    size_t room = strlen(path) + sizeof name;
    source->path = host->alloc(room);
    if (!source->path)
        return DLC_ERR_NOMEM;
    (void)snprintf(source->path, room, "%s%s", path, is_folder ? name : "");
    return file_open(source->path, &source->in);
}

/* The first sample says what the images are like. */
static dlc_status make_fields(const dlc_settings *settings, dlc_source *source) {
    unsigned char *room = NULL;
    const unsigned char *message;
    datum first = {0};
    dlc_status status = read_datum(source, 0, &room, &message, &first);
    if (!room)
        return status;
    host->free(room);
    fields_make(host->get_bool(settings, "grey"), &source->known, 0, source->field);
    source->is_encoded = first.is_encoded;
    if (first.is_encoded)
        return DLC_OK;
    int64_t count = count_numbers(&first);
    dlc_field *image = &source->field[IMAGE];
    if (!count || (uint64_t)count != (first.bytes ? first.bytes : first.floats))
        return fail_sample(source, 0,
                           "its pixels are not channels times height times width; it "
                           "may be encoded without saying so");
    image->flags = 0;
    image->dtype = first.bytes ? DLC_U8 : DLC_F32;
    image->shape = (dlc_shape){3, {first.channels, first.height, first.width}};
    return DLC_OK;
}

static dlc_status lmdb_open(const dlc_data_args *args, dlc_source **source) {
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->in.fd = -1;
    dlc_status status = classes_know(args, &made->known);
    if (status == DLC_OK)
        status = find_file(args->settings, made);
    if (status == DLC_OK)
        status = tree_walk(&made->in, add_value, made);
    if (status == DLC_OK && count_of(made) == 0)
        status = host->fail(DLC_ERR_DATA, "%s: it has no samples", made->path);
    if (status == DLC_OK)
        status = make_fields(args->settings, made);
    if (status != DLC_OK) {
        lmdb_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status lmdb_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = count_of(source);
    info->fields = source->field;
    info->field_count = FIELDS;
    return DLC_OK;
}

/* ---- Reading ----------------------------------------------------------------- */

/* Gives the caller a copy, which is the value. */
static void *copy_out(dlc_sample *sample, int32_t field, const void *bytes,
                      size_t count) {
    void *to = sample->memory(sample, field, count);
    if (to && bytes)
        memcpy(to, bytes, count);
    return to;
}

static dlc_status give_image(dlc_source *source, const unsigned char *message,
                             const datum *from, dlc_sample *sample) {
    const dlc_field *image = &source->field[IMAGE];
    int64_t count = dlc_shape_count(&image->shape);
    int is_same = from->is_encoded == source->is_encoded;
    if (is_same && from->is_encoded)
        return copy_out(sample, IMAGE, from->data, from->bytes) ? DLC_OK
                                                                : DLC_ERR_NOMEM;
    is_same = is_same && from->channels == image->shape.dims[0] &&
              from->height == image->shape.dims[1] &&
              from->width == image->shape.dims[2] &&
              (image->dtype == DLC_U8 ? (int64_t)from->bytes == count
                                      : (int64_t)from->floats == count && !from->bytes);
    if (!is_same)
        return fail_sample(source, sample->index,
                           "its image has another form or size than the first one");
    if (image->dtype == DLC_U8)
        return copy_out(sample, IMAGE, from->data, from->bytes) ? DLC_OK
                                                                : DLC_ERR_NOMEM;
    datum again;
    float *to = copy_out(sample, IMAGE, NULL, (size_t)count * sizeof *to);
    if (!to)
        return DLC_ERR_NOMEM;
    (void)datum_parse(message, value_at(source, sample->index)->bytes, to, &again);
    return DLC_OK;
}

static dlc_status lmdb_read_sample(dlc_source *source, dlc_sample *sample) {
    unsigned char *room = NULL;
    const unsigned char *message = NULL;
    datum one = {0};
    dlc_status status = read_datum(source, sample->index, &room, &message, &one);
    if (!room)
        return status;
    int32_t label = (int32_t)one.label;
    if (sample->wanted & 1u << LABEL && !copy_out(sample, LABEL, &label, sizeof label))
        status = DLC_ERR_NOMEM;
    if (status == DLC_OK && sample->wanted & 1u << IMAGE)
        status = give_image(source, message, &one, sample);
    host->free(room);
    return status;
}

/* ---- Descriptor -------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("path", "the folder of a database, or its file"),
    DLC_STRING("classes", NULL,
               "names of the classes in the order of their labels, joined by commas; "
               "default: those of the training data"),
    DLC_BOOL("grey", "false",
             "encoded images have one channel, the brightness, and not three"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = lmdb_open,
    .close = lmdb_close,
    .describe = lmdb_describe,
    .read_sample = lmdb_read_sample,
    .name = lmdb_name,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "lmdb",
     .help = "LMDB databases of Caffe: pixels or image files with their labels",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("lmdb", DLC_VERSION, "BSD-2-Clause", features, lmdb_load);
