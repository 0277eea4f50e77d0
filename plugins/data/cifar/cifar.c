/* The data source "cifar": the binary files of CIFAR-10 and CIFAR-100, held in memory.
 * A file consists of records only: the label (CIFAR-100: the coarse label, then the
 * fine one, which is used here) and 3072 bytes, the red, green and blue plane. */
#include <dlcore/data.h>

#include <stdio.h>
#include <string.h>

#include "../shared/file.h"
#include "../shared/record.h"

#define SIDE 32
#define SAMPLE_BYTES ((size_t)3 * SIDE * SIDE)
#define COARSE_CLASSES 20

#define DEFAULT_FILES_10 \
    "data_batch_1.bin,data_batch_2.bin,data_batch_3.bin,data_batch_4.bin,data_batch_5.bin"
#define DEFAULT_FILES_100 "train.bin"

const dlc_host *host;

/* One file of the list: its path, and where its records are in dlc_source.records. */
typedef struct part {
    char *path;
    size_t begin, bytes;
} part;

struct dlc_source {
    int32_t classes;
    size_t labels; /* label bytes of a record */
    size_t record_bytes;
    part *parts;
    size_t part_count;
    unsigned char *records;
    size_t bytes; /* of all records */
};

/* ---- List of files ------------------------------------------------------------ */

/* Returns the next name of a comma-separated list, without surrounding spaces. */
static const char *next_name(const char *list, const char **name, size_t *length) {
    const char *end = strchrnul(list, ',');
    const char *next = *end ? end + 1 : NULL;
    while (list < end && *list == ' ')
        list++;
    while (end > list && end[-1] == ' ')
        end--;
    *name = list;
    *length = (size_t)(end - list);
    return next;
}

static dlc_status add_part(dlc_source *source, const char *folder, const char *name,
                           size_t length) {
    size_t room = strlen(folder) + 1 + length + 1;
    char *path = host->alloc(room);
    if (!path)
        return DLC_ERR_NOMEM;
    int absolute = name[0] == '/';
    snprintf(path, room, "%s%s%.*s", absolute ? "" : folder, absolute ? "" : "/",
             (int)length, name);
    source->parts[source->part_count++].path = path;
    return DLC_OK;
}

static dlc_status list_parts(dlc_source *source, const dlc_settings *settings) {
    const char *folder = host->get_string(settings, "folder");
    const char *files = host->get_string(settings, "files");
    if (!files)
        files = source->classes == 100 ? DEFAULT_FILES_100 : DEFAULT_FILES_10;
    size_t count = 1;
    for (const char *at = files; *at; at++)
        count += *at == ',';
    source->parts = host->alloc(count * sizeof *source->parts);
    if (!source->parts)
        return DLC_ERR_NOMEM;
    for (const char *rest = files; rest;) {
        const char *name;
        size_t length;
        rest = next_name(rest, &name, &length);
        if (!length || length > INT16_MAX)
            return host->fail(DLC_ERR_CONFIG,
                              "%s: files = %.200s: there is an empty name in the list, "
                              "or one that is too long",
                              host->where(settings, "files"), files);
        dlc_status status = add_part(source, folder, name, length);
        if (status != DLC_OK)
            return status;
    }
    return DLC_OK;
}

/* ---- Contents ----------------------------------------------------------------- */

/* Opens a part; its size must be a whole number of records. */
static dlc_status open_part(const dlc_source *source, const part *from,
                            data_file *made) {
    data_file opened = {.fd = -1};
    dlc_status status = file_open(from->path, &opened);
    if (status != DLC_OK)
        return status;
    if (opened.bytes == 0 || (size_t)opened.bytes % source->record_bytes) {
        file_close(&opened);
        return host->fail(
            DLC_ERR_DATA,
            "%s has %lld bytes, which is no multiple of a CIFAR-%d record's %zu: it was "
            "cut short, or is something else",
            from->path, (long long)opened.bytes, source->classes, source->record_bytes);
    }
    *made = opened;
    return DLC_OK;
}

static dlc_status read_part(dlc_source *source, const part *from) {
    data_file opened = {.fd = -1};
    dlc_status status = open_part(source, from, &opened);
    if (status != DLC_OK)
        return status;
    if ((size_t)opened.bytes != from->bytes)
        status = host->fail(DLC_ERR_DATA, "%s changes while it is being read",
                            from->path);
    else
        status = file_read(&opened, 0, source->records + from->begin, from->bytes);
    file_close(&opened);
    return status;
}

static dlc_status check_label(const dlc_source *source, const part *from, size_t at,
                              int32_t classes) {
    int32_t label = source->records[from->begin + at];
    if (label < classes)
        return DLC_OK;
    return host->fail(
        DLC_ERR_DATA,
        "%s: label %d at byte %zu (record %zu) is not one of 0 to %d: the "
        "file is damaged, or is not CIFAR-%d",
        from->path, label, at, at / source->record_bytes, classes - 1, source->classes);
}

static dlc_status check_part(const dlc_source *source, const part *from) {
    for (size_t at = 0; at < from->bytes; at += source->record_bytes) {
        dlc_status status = DLC_OK;
        if (source->labels == 2)
            status = check_label(source, from, at, COARSE_CLASSES);
        if (status == DLC_OK)
            status = check_label(source, from, at + source->labels - 1,
                                 source->classes);
        if (status != DLC_OK)
            return status;
    }
    return DLC_OK;
}

/* Adds up the sizes first, so that all files fit one block of memory. */
static dlc_status measure_parts(dlc_source *source) {
    for (size_t i = 0; i < source->part_count; i++) {
        part *from = &source->parts[i];
        data_file opened = {.fd = -1};
        dlc_status status = open_part(source, from, &opened);
        if (status != DLC_OK)
            return status;
        from->bytes = (size_t)opened.bytes;
        file_close(&opened);
        from->begin = source->bytes;
        if (__builtin_add_overflow(source->bytes, from->bytes, &source->bytes))
            return host->fail(DLC_ERR_DATA, "%s is impossibly large", from->path);
    }
    return DLC_OK;
}

static dlc_status load_parts(dlc_source *source) {
    dlc_status status = measure_parts(source);
    if (status != DLC_OK)
        return status;
    source->records = host->alloc(source->bytes);
    if (!source->records)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; status == DLC_OK && i < source->part_count; i++) {
        status = read_part(source, &source->parts[i]);
        if (status == DLC_OK)
            status = check_part(source, &source->parts[i]);
    }
    return status;
}

/* ---- Operations --------------------------------------------------------------- */

static void cifar_close(dlc_source *source) {
    if (!source)
        return;
    host->free(source->records);
    for (size_t i = 0; i < source->part_count; i++)
        host->free(source->parts[i].path);
    host->free(source->parts);
    host->free(source);
}

static dlc_status cifar_open(const dlc_data_args *args, dlc_source **source) {
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    int is_100 = strcmp(host->get_string(args->settings, "classes"), "100") == 0;
    made->classes = is_100 ? 100 : 10;
    made->labels = is_100 ? 2 : 1;
    made->record_bytes = made->labels + SAMPLE_BYTES;
    dlc_status status = list_parts(made, args->settings);
    if (status == DLC_OK)
        status = load_parts(made);
    if (status != DLC_OK) {
        cifar_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status cifar_describe(dlc_source *source, dlc_data_info *info) {
    dlc_data_info ours = {
        .size = info->size,
        .samples = (int64_t)(source->bytes / source->record_bytes),
        .shape = {3, {3, SIDE, SIDE}},
        .dtype = DLC_U8,
        .classes = source->classes,
    };
    memcpy(info, &ours, ours.size < sizeof ours ? ours.size : sizeof ours);
    return DLC_OK;
}

static dlc_status cifar_read(dlc_source *source, int32_t n, const int64_t *index,
                             void *data, int32_t *labels) {
    for (int32_t i = 0; i < n; i++) {
        const unsigned char *record = source->records +
                                      (size_t)index[i] * source->record_bytes;
        if (i + 1 < n)
            record_fetch(source->records + (size_t)index[i + 1] * source->record_bytes,
                         source->record_bytes);
        labels[i] = record[source->labels - 1];
        memcpy((char *)data + (size_t)i * SAMPLE_BYTES, record + source->labels,
               SAMPLE_BYTES);
    }
    return DLC_OK;
}

static dlc_status cifar_start(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("folder", "where the binary files are"),
    DLC_STRING("files", NULL,
               "names of the files, separated by commas; unset: the training files"),
    DLC_CHOICE("classes", "10", "10|100", "CIFAR-10, or CIFAR-100 by its fine labels"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = cifar_open,
    .close = cifar_close,
    .describe = cifar_describe,
    .read = cifar_read,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "cifar",
     .help = "CIFAR-10 and CIFAR-100 in their binary format",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("cifar", DLC_VERSION, "BSD-2-Clause", features, cifar_start);
