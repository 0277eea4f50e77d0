/* The data source "npy": arrays as NumPy writes them, one row a sample. `path` is a
 * .npz file, or a folder of .npy files; options say which array is which field.
 *
 * Rows are read where they are, when they are needed. An array that is packed, as
 * numpy.savez_compressed does, is unpacked to a file without a name when the source is
 * opened: packed data cannot be read in any order. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../shared/fields.h"
#include "../shared/npy_header.h"
#include "zip.h"

const dlc_host *host;

/* Where the rows of a field are. */
typedef struct stored {
    data_file in; /* a file of its own, if `owned` */
    char *path;   /* owned; of that file */
    int owned;
    int64_t begin;
} stored;

struct dlc_source {
    const char *path;
    data_file archive; /* fd is -1 for a folder */
    zip directory;
    stored at[DLC_FIELDS_MAX];
    fields all;
};

static dlc_status npy_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* ---- Finding arrays ------------------------------------------------------------ */

static void stored_close(stored *of) {
    if (of->owned)
        file_close(&of->in);
    host->free(of->path);
    *of = (stored){0};
}

/* "FOLDER/NAME.npy", or "NAME.npy". */
static dlc_status join(const char *folder, const char *name, char **path) {
    size_t room = strlen(folder) + strlen(name) + sizeof "/.npy";
    char *made = host->alloc(room);
    if (!made)
        return DLC_ERR_NOMEM;
    (void)snprintf(made, room, "%s%s%s.npy", folder, *folder ? "/" : "", name);
    *path = made;
    return DLC_OK;
}

static dlc_status find_in_folder(stored *to, array *made, int *found) {
    struct stat info;
    if (stat(to->path, &info) != 0)
        return DLC_OK;
    dlc_status status = file_open(to->path, &to->in);
    if (status != DLC_OK)
        return status;
    to->owned = 1;
    *found = 1;
    return npy_header_read(&to->in, "the array", 0, to->in.bytes, made, &to->begin);
}

static dlc_status find_in_archive(dlc_source *source, stored *to, array *made,
                                  int *found) {
    zip_member member = {0};
    int64_t begin = 0;
    dlc_status status = zip_find(&source->directory, to->path, &member, found);
    if (status != DLC_OK || !*found)
        return status;
    to->in = source->archive;
    if (member.is_deflated) {
        status = zip_unpack(&source->directory, to->path, &member, &to->in);
        to->owned = status == DLC_OK;
    } else {
        begin = member.begin;
    }
    return status == DLC_OK ? npy_header_read(&to->in, to->path, begin, member.bytes,
                                              made, &to->begin)
                            : status;
}

static dlc_status npy_find(dlc_source *source, int32_t field, const char *name,
                           array *made, int *found) {
    stored *to = &source->at[field];
    int is_folder = source->archive.fd < 0;
    stored_close(to); /* of a default that was not there */
    dlc_status status = join(is_folder ? source->path : "", name, &to->path);
    if (status != DLC_OK)
        return status;
    return is_folder ? find_in_folder(to, made, found)
                     : find_in_archive(source, to, made, found);
}

static dlc_status npy_read_rows(dlc_source *source, int32_t field, int64_t first,
                                int64_t count, void *to) {
    const stored *from = &source->at[field];
    int64_t bytes = array_row_bytes(&source->all.of[field]);
    return file_read(&from->in, from->begin + first * bytes, to,
                     (size_t)(count * bytes));
}

/* ---- Operations ---------------------------------------------------------------- */

static void npy_close(dlc_source *source) {
    if (!source)
        return;
    fields_close(&source->all);
    for (int32_t f = 0; f < DLC_FIELDS_MAX; f++)
        stored_close(&source->at[f]);
    zip_close(&source->directory);
    file_close(&source->archive);
    host->free(source);
}

static dlc_status npy_open(const dlc_data_args *args, dlc_source **source) {
    static const array_reader reader = {npy_find, npy_read_rows, NULL};
    struct stat info;
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->path = host->get_string(args->settings, "path");
    made->archive.fd = -1;
    made->all = (fields){.reader = &reader, .source = made, .path = made->path};
    dlc_status status = DLC_OK;
    if (stat(made->path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        status = file_open(made->path, &made->archive);
        if (status == DLC_OK)
            status = zip_open(&made->archive, &made->directory);
    }
    if (status == DLC_OK)
        status = fields_open(args, &made->all);
    if (status != DLC_OK) {
        npy_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status npy_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = source->all.samples;
    info->fields = source->all.field;
    info->field_count = source->all.count;
    return DLC_OK;
}

static dlc_status npy_read_sample(dlc_source *source, dlc_sample *sample) {
    return fields_read(&source->all, sample);
}

static void npy_name(dlc_source *source, int64_t index, char *text, size_t room) {
    (void)snprintf(text, room, "%s: row %lld", source->path, (long long)index);
}

/* ---- Descriptor ---------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("path", "a .npz file, or a folder of .npy files"),
    ARRAY_OPTIONS("x", "y", "name of the array"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = npy_open,
    .close = npy_close,
    .describe = npy_describe,
    .read_sample = npy_read_sample,
    .name = npy_name,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "npy",
     .help = "arrays of NumPy, in a .npz file or in .npy files",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("npy", DLC_VERSION, "BSD-2-Clause", features, npy_load);
