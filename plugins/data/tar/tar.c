/* The data source "tar": shards as WebDataset writes them. Files that follow each other
 * and have the same name up to its first dot are one sample: KEY.jpg is its image,
 * KEY.cls the number of its class, as text; KEY.NAME.npy is an array that an option
 * makes a field (arrays.h). Others are left out.
 *
 * open goes through the headers of all shards and remembers where each image is;
 * nothing else is kept in memory, and nothing is unpacked. */
#include <dlcore/data.h>

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/classes.h"
#include "arrays.h"

#define LABEL_TEXT 16

const dlc_host *host;

/* What a sample has beside arrays. */
enum { IMAGE, LABEL, KINDS };

/* Where the image of a sample is. */
typedef struct entry {
    int64_t begin, bytes;
    size_t name; /* of the key, in the names */
    int32_t shard, label;
} entry;

/* Parts of shards that were asked for last. */
enum { AHEAD = 256 };

struct dlc_source {
    glob_t found; /* the paths of the shards */
    int has_found;
    data_file *shard; /* owned; one for each path */
    int32_t shards;
    growing entries, names;
    int32_t labels;
    int wants_arrays, reads_label; /* options ask for arrays; labels are .cls files */
    int has[KINDS];    /* all samples have one, or none; -1: not known yet */
    int32_t at[KINDS]; /* the number of the field; -1: there is none */
    dlc_field field[DLC_FIELDS_MAX];
    int32_t fields;
    arrays arrays;
    int64_t readahead; /* bytes that are asked for at once; 0: those of the sample */
    _Atomic int64_t ahead[AHEAD];
};

static int64_t count_of(const dlc_source *source) {
    return (int64_t)(source->entries.used / sizeof(entry));
}

static const entry *entry_at(const dlc_source *source, int64_t index) {
    return (const entry *)(const void *)source->entries.bytes + index;
}

static dlc_status tar_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static void tar_close(dlc_source *source) {
    if (!source)
        return;
    for (int32_t i = 0; i < source->shards; i++)
        file_close(&source->shard[i]);
    host->free(source->shard);
    growing_free(&source->entries);
    growing_free(&source->names);
    arrays_free(&source->arrays);
    if (source->has_found)
        globfree(&source->found);
    host->free(source);
}

/* ---- Samples of a shard ------------------------------------------------------- */

/* The sample that is being put together. */
typedef struct collecting {
    dlc_source *source;
    const char *endings;
    growing key; /* ends with a zero byte; empty: there is none */
    entry sample;
    int64_t archive; /* of its files; several may follow each other in a shard */
    int has[KINDS], has_array;
} collecting;

static dlc_status fail_sample(const collecting *c, const char *what) {
    return host->fail(DLC_ERR_DATA, "%s: %s: %s",
                      c->source->shard[c->sample.shard].path, c->key.bytes, what);
}

/* What one sample has, all have. Without arrays, all have an image and a class. */
static dlc_status check_sample(const collecting *c) {
    static const char *const lacks[KINDS] = {
        "a sample with a class (.cls), but without an image",
        "a sample without a class: there is no .cls beside its image"};
    static const char *const adds[KINDS] = {
        "it has an image, which the samples before it do not have",
        "it has a class (.cls), which the samples before it do not have"};
    for (int i = 0; i < KINDS; i++) {
        if (c->source->has[i] < 0)
            c->source->has[i] = c->has[i];
        if (c->source->has[i] != c->has[i])
            return fail_sample(c, c->has[i] ? adds[i] : lacks[i]);
    }
    return DLC_OK;
}

/* Keeps the sample whose files have all been seen. */
static dlc_status end_sample(collecting *c) {
    dlc_source *source = c->source;
    if (!c->key.used || (!c->has[IMAGE] && !c->has[LABEL] && !c->has_array))
        return DLC_OK;
    dlc_status status = check_sample(c);
    if (status != DLC_OK)
        return status;
    c->sample.name = source->names.used;
    status = growing_add(&source->names, c->key.bytes, c->key.used);
    if (status == DLC_OK)
        status = growing_add(&source->entries, &c->sample, sizeof c->sample);
    if (c->sample.label >= source->labels)
        source->labels = c->sample.label + 1;
    return status;
}

static dlc_status begin_sample(collecting *c, const char *name, size_t key) {
    int32_t shard = c->sample.shard;
    c->sample = (entry){.shard = shard};
    c->has[IMAGE] = c->has[LABEL] = c->has_array = 0;
    c->key.used = 0;
    dlc_status status = growing_add(&c->key, name, key);
    return status == DLC_OK ? growing_add(&c->key, "", 1) : status;
}

/* Reads the number of a class (label_parse). */
static dlc_status read_label(collecting *c, const member *file) {
    char text[LABEL_TEXT + 1] = "";
    if (file->bytes < 1 || file->bytes > LABEL_TEXT)
        return fail_sample(c, "its .cls is not the number of a class");
    dlc_status status = file_read(&c->source->shard[c->sample.shard], file->begin, text,
                                  (size_t)file->bytes);
    if (status != DLC_OK)
        return status;
    if (!label_parse(text, (size_t)file->bytes, &c->sample.label))
        return fail_sample(c, "its .cls is not the number of a class");
    c->has[LABEL] = 1;
    return DLC_OK;
}

/* Adds the array KEY.NAME.npy, whose ending is ".NAME.npy", to the sample. */
static dlc_status add_array(collecting *c, const member *file, const char *ending) {
    dlc_source *source = c->source;
    c->has_array = 1;
    return arrays_add(&source->arrays, ending + 1, strlen(ending) - sizeof ARRAY_ENDING,
                      file, c->sample.shard, count_of(source));
}

static dlc_status refuse_substitute(const collecting *c, const member *file,
                                    const char *ending) {
    return host->fail(DLC_ERR_DATA,
                      "%s: %s%s is %s, without the contents of the file; `tar "
                      "--dereference --hard-dereference` writes them",
                      c->source->shard[c->sample.shard].path, c->key.bytes, ending,
                      file->substitute);
}

/* Takes a file of the sample, whose name goes on with `ending` after the key. */
static dlc_status take_file(collecting *c, const member *file, const char *ending) {
    int is_label = strcmp(ending, ".cls") == 0 && c->source->reads_label;
    int is_field = c->source->wants_arrays && is_array(ending);
    if (!is_label && !is_field && !name_ends_as(ending, c->endings))
        return DLC_OK;
    if (file->substitute)
        return refuse_substitute(c, file, ending);
    if (is_label)
        return c->has[LABEL] ? fail_sample(c, "it has two classes")
                             : read_label(c, file);
    if (is_field)
        return add_array(c, file, ending);
    if (c->has[IMAGE])
        return fail_sample(c, "it has two images");
    c->sample.begin = file->begin;
    c->sample.bytes = file->bytes;
    c->has[IMAGE] = 1;
    return DLC_OK;
}

static dlc_status add_file(void *context, const member *file) {
    collecting *c = context;
    const char *base = strrchr(file->name, '/');
    base = base ? base + 1 : file->name;
    const char *dot = strchr(base, '.');
    if (!dot || dot == base)
        return DLC_OK; /* folders' own files, and hidden ones */
    size_t key = (size_t)(dot - file->name);
    dlc_status status = DLC_OK;
    if (!c->key.used || c->key.used != key + 1 || c->archive != file->archive ||
        memcmp(c->key.bytes, file->name, key) != 0) {
        status = end_sample(c);
        c->archive = file->archive;
        if (status == DLC_OK)
            status = begin_sample(c, file->name, key);
    }
    return status == DLC_OK ? take_file(c, file, dot) : status;
}

static dlc_status read_shard(dlc_source *source, int32_t shard, const char *endings) {
    collecting c = {.source = source, .endings = endings, .sample.shard = shard};
    dlc_status status = archive_walk(&source->shard[shard], add_file, &c);
    if (status == DLC_OK)
        status = end_sample(&c);
    growing_free(&c.key);
    return status;
}

/* ---- Opening ----------------------------------------------------------------- */

/* Adds the classes in the file classes.txt beside the shards, one a line, if there is
 * one and nothing else says what they are. */
static dlc_status read_classes(dlc_source *source) {
    const char *shard = source->found.gl_pathv[0], *slash = strrchr(shard, '/');
    char *line = NULL, path[PATH_MAX];
    size_t room = 0;
    ssize_t length;
    dlc_status status = DLC_OK;
    int folder = slash ? (int)(slash + 1 - shard) : 0;
    if (source->arrays.all.known.count ||
        snprintf(path, sizeof path, "%.*sclasses.txt", folder, shard) >= PATH_MAX)
        return DLC_OK;
    FILE *file = fopen(path, "re");
    if (!file && errno != ENOENT)
        return host->fail(DLC_ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    while (file && status == DLC_OK && (length = getline(&line, &room, file)) > 0) {
        while (length > 0 && strchr("\r\n", line[length - 1]))
            length--;
        status = length ? classes_add(&source->arrays.all.known, line, (size_t)length)
                        : host->fail(DLC_ERR_DATA,
                                     "%s: a line is empty, but each is the "
                                     "name of a class",
                                     path);
    }
    free(line);
    if (file && status == DLC_OK && ferror(file))
        status = host->fail(DLC_ERR_DATA, "cannot read %s: %s", path, strerror(errno));
    if (file)
        (void)fclose(file);
    return status == DLC_OK
               ? classes_distinct(&source->arrays.all.known, DLC_ERR_DATA, path)
               : status;
}

/* Finds the shards, sorted by their names. */
static dlc_status find_shards(dlc_source *source, const char *pattern) {
    int code = glob(pattern, GLOB_NOCHECK | GLOB_ERR, NULL, &source->found);
    if (code == GLOB_NOSPACE)
        return host->fail(DLC_ERR_NOMEM, "out of memory to list %s", pattern);
    if (code != 0)
        return host->fail(DLC_ERR_DATA, "%s: cannot be listed: %s", pattern,
                          strerror(errno));
    source->has_found = 1;
    source->shard = host->alloc(source->found.gl_pathc * sizeof *source->shard);
    return source->shard ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status open_shards(dlc_source *source, const char *endings) {
    dlc_status status = DLC_OK;
    if (source->found.gl_pathc > INT32_MAX)
        return host->fail(DLC_ERR_DATA, "there are too many shards");
    for (size_t i = 0; status == DLC_OK && i < source->found.gl_pathc; i++) {
        status = file_open(source->found.gl_pathv[i], &source->shard[i]);
        if (status != DLC_OK)
            break;
        source->shards++;
        status = read_shard(source, (int32_t)i, endings);
    }
    return status;
}

/* What the settings say of the files of a sample. */
static void choose_files(const dlc_data_args *args, dlc_source *source,
                         const char **endings) {
    const dlc_settings *settings = args->settings;
    source->wants_arrays = fields_are_asked(settings);
    source->reads_label = !host->is_set(settings, "label");
    *endings = host->is_set(settings, "image") ? "" : endings_of(args);
    for (int i = 0; i < KINDS; i++)
        source->has[i] = source->wants_arrays ? -1 : 1;
}

/* Makes the fields: the image and the class of files, then those of arrays. */
static dlc_status make_fields(const dlc_data_args *args, const char *pattern,
                              dlc_source *source) {
    dlc_field made[KINDS];
    fields *all = &source->arrays.all;
    dlc_status status = classes_check(&all->known, source->labels, count_of(source),
                                      pattern);
    fields_make(host->get_bool(args->settings, "grey"), &all->known, source->labels,
                made);
    for (int i = 0; i < KINDS; i++) {
        source->at[i] = source->has[i] > 0 ? source->fields : -1;
        if (source->has[i] > 0)
            source->field[source->fields++] = made[i];
    }
    all->first = source->fields;
    if (status == DLC_OK && source->wants_arrays)
        status = arrays_open(&source->arrays, args, source->shard, count_of(source));
    for (int32_t f = 0; f < all->count; f++)
        source->field[source->fields++] = all->field[f];
    return status;
}

static dlc_status tar_open(const dlc_data_args *args, dlc_source **source) {
    const dlc_settings *settings = args->settings;
    const char *pattern = host->get_string(settings, "shards"), *endings = "";
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->arrays.all.path = pattern;
    choose_files(args, made, &endings);
    dlc_status status = classes_know(args, &made->arrays.all.known);
    if (status == DLC_OK)
        status = find_shards(made, pattern);
    if (status == DLC_OK)
        status = read_classes(made);
    if (status == DLC_OK)
        status = open_shards(made, endings);
    if (status == DLC_OK && count_of(made) == 0)
        status = host->fail(DLC_ERR_DATA,
                            "%s: no samples; one has an image KEY.jpg and a class "
                            "KEY.cls",
                            pattern);
    if (status == DLC_OK)
        status = make_fields(args, pattern, made);
    if (status != DLC_OK) {
        tar_close(made);
        return status;
    }
    made->readahead = host->get_int(settings, "readahead");
    *source = made;
    return DLC_OK;
}

static dlc_status tar_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = count_of(source);
    info->fields = source->field;
    info->field_count = source->fields;
    return DLC_OK;
}

/* ---- Reading ----------------------------------------------------------------- */

static void tar_name(dlc_source *source, int64_t index, char *text, size_t room) {
    const entry *at = entry_at(source, index);
    (void)snprintf(text, room, "%s: %s", source->shard[at->shard].path,
                   source->names.bytes + at->name);
}

/* Lets the kernel read the part of the shard that the sample is in, all at once, unless
 * that was asked for a little while ago. */
static void read_ahead(dlc_source *source, const entry *at) {
    if (!source->readahead)
        return;
    int64_t part = at->begin / source->readahead;
    int64_t number = (int64_t)at->shard << 32 | (part + 1);
    if (atomic_exchange(&source->ahead[number % AHEAD], number) != number)
        (void)posix_fadvise(source->shard[at->shard].fd, part * source->readahead,
                            source->readahead, POSIX_FADV_WILLNEED);
}

static dlc_status read_image(dlc_source *source, const entry *at, dlc_sample *sample) {
    int32_t f = source->at[IMAGE];
    if (f < 0 || !(sample->wanted >> f & 1))
        return DLC_OK;
    void *to = sample->memory(sample, f, (uint64_t)at->bytes);
    if (!to)
        return DLC_ERR_NOMEM;
    read_ahead(source, at);
    return file_read(&source->shard[at->shard], at->begin, to, (size_t)at->bytes);
}

static dlc_status tar_read_sample(dlc_source *source, dlc_sample *sample) {
    const entry *at = entry_at(source, sample->index);
    if (source->at[LABEL] >= 0)
        label_give(sample, source->at[LABEL], &at->label);
    dlc_status status = read_image(source, at, sample);
    return status == DLC_OK ? fields_read(&source->arrays.all, sample) : status;
}

/* ---- Descriptor -------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("shards", "a tar file, or a pattern of several: shards/*.tar"),
    DLC_STRING(
        "classes", NULL,
        "names of the classes in the order of their labels, joined by commas; "
        "default: those of the training data, or of classes.txt beside the shards"),
    OPTION_ENDINGS(""),
    ARRAY_FIELD_OPTIONS(NULL, NULL, "NAME of the files KEY.NAME.npy"),
    DLC_BYTES(
        "readahead", "0", 0, 1 << 30,
        "with shuffle_window, on disks that seek slowly: the part of a shard that "
        "is read at once, such as 16M; 0: one sample"),
    OPTION_GREY,
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = tar_open,
    .close = tar_close,
    .describe = tar_describe,
    .read_sample = tar_read_sample,
    .name = tar_name,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "tar",
     .help = "image files in tar archives, as WebDataset writes them",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("tar", DLC_VERSION, "BSD-2-Clause", features, tar_load);
