/* Finds the files to predict. */
#include "predict_inputs.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/decoders.h"

static int is_array(const char *path) {
    const char *ending = strrchr(path, '.');
    return ending && strcasecmp(ending, ".npy") == 0;
}

/* A folder may hold other files beside samples; a file that is named must be one. */
static int is_sample(const char *path, const char *endings) {
    return is_array(path) || dlc_ends_as(path, endings);
}

static dlc_status add_file(dlc_inputs *inputs, const char *path) {
    enum { FEWEST = 64 };
    if (inputs->count == inputs->room) {
        size_t room = inputs->room ? 2 * inputs->room : FEWEST;
        char **grown = dlc_grow(inputs->path, inputs->room, room, sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        inputs->path = grown;
        inputs->room = room;
    }
    char *copy = dlc_strdup(path);
    if (!copy)
        return DLC_ERR_NOMEM;
    inputs->path[inputs->count++] = copy;
    return DLC_OK;
}

static int compare(const FTSENT **left, const FTSENT **right) {
    return strcmp((*left)->fts_name, (*right)->fts_name);
}

/* Hidden files and folders are left out, as in training: other systems leave files such
 * as ._1.jpg. */
static int is_hidden(const FTSENT *entry) {
    return entry->fts_level > FTS_ROOTLEVEL && entry->fts_name[0] == '.';
}

/* A file, or what cannot be read as one, such as a link to nowhere: reading it says so.
 */
static int is_file(const FTSENT *entry) {
    return entry->fts_info == FTS_F || entry->fts_info == FTS_SLNONE ||
           entry->fts_info == FTS_DEFAULT || entry->fts_info == FTS_NS;
}

/* What is in a folder and is not predicted must not be missed by its owner. */
typedef struct others {
    size_t count;
    char first[256]; /* cut if need be */
} others;

static dlc_status add_entry(dlc_inputs *inputs, const char *endings,
                            const FTSENT *entry, others *passed) {
    if (is_sample(entry->fts_name, endings))
        return add_file(inputs, entry->fts_path);
    if (!passed->count++)
        (void)snprintf(passed->first, sizeof passed->first, "%s", entry->fts_path);
    return DLC_OK;
}

static dlc_status walk(dlc_inputs *inputs, const char *endings, FTS *tree,
                       others *passed) {
    FTSENT *entry;
    while ((errno = 0, entry = fts_read(tree))) {
        if (is_hidden(entry)) {
            (void)fts_set(tree, entry, FTS_SKIP);
            continue;
        }
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR)
            return dlc_fail(DLC_ERR_DATA, "cannot read %s: %s", entry->fts_path,
                            strerror(entry->fts_errno));
        if (is_file(entry))
            DLC_TRY(add_entry(inputs, endings, entry, passed));
    }
    return errno ? dlc_fail(DLC_ERR_IO, "reading a folder: %s", strerror(errno))
                 : DLC_OK;
}

static dlc_status add_folder(dlc_inputs *inputs, const char *endings,
                             const char *path) {
    char *copy = dlc_strdup(path);
    others passed = {.count = 0};
    if (!copy)
        return DLC_ERR_NOMEM;
    /* Links are followed; one that leads back to a folder above is left out. */
    FTS *tree = fts_open((char *[]){copy, NULL}, FTS_LOGICAL | FTS_NOCHDIR, compare);
    dlc_status status = tree ? walk(inputs, endings, tree, &passed)
                             : dlc_fail(DLC_ERR_IO, "cannot read %s: %s", path,
                                        strerror(errno));
    if (tree)
        (void)fts_close(tree);
    if (passed.count)
        dlc_info("%s: %zu other files, such as %s, are passed over; images end in %s",
                 path, passed.count, passed.first, endings);
    dlc_free(copy);
    return status;
}

static dlc_status add_lines(dlc_inputs *inputs, FILE *list, const char *name) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    size_t before = inputs->count;
    int is_list = 0; /* one of its lines at least is a file */
    /* Editors of other systems begin UTF-8 with this. */
    const char *mark = "\xef\xbb\xbf";
    dlc_status status = DLC_OK;
    while (status == DLC_OK && (length = getline(&line, &room, list)) >= 0) {
        if (memchr(line, '\0', (size_t)length))
            status = dlc_fail(DLC_ERR_DATA,
                              "%s: there is a null byte in it; give one file per line",
                              name);
        line[strcspn(line, "\r\n")] = '\0';
        const char *path = line +
                           (strncmp(line, mark, strlen(mark)) ? 0 : strlen(mark));
        mark = "";
        if (status == DLC_OK && *path)
            status = add_file(inputs, path);
        is_list = is_list || access(path, F_OK) == 0;
    }
    if (status == DLC_OK && ferror(list))
        status = dlc_fail(DLC_ERR_IO, "cannot read %s: %s", name, strerror(errno));
    if (status == DLC_OK && inputs->count > before && !is_list)
        status = dlc_fail(DLC_ERR_DATA,
                          "%s: none of its lines is the path of a file (\"%.200s\"); "
                          "texts are not predicted, but the images that a text lists, "
                          "one a line",
                          name, inputs->path[before]);
    free(line);
    return status;
}

static dlc_status add_list(dlc_inputs *inputs, const char *path) {
    FILE *list = fopen(path, "re");
    if (!list)
        return dlc_fail(DLC_ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    dlc_status status = add_lines(inputs, list, path);
    (void)fclose(list);
    return status;
}

dlc_status dlc_inputs_add(dlc_inputs *inputs, const char *endings, const char *word) {
    size_t before = inputs->count;
    struct stat info;
    const char *ending = strrchr(word, '.');
    dlc_status status;
    if (strcmp(word, "-") == 0)
        status = add_lines(inputs, stdin, "stdin");
    else if (stat(word, &info) == 0 && S_ISDIR(info.st_mode))
        status = add_folder(inputs, endings, word);
    else if (ending && strcasecmp(ending, ".txt") == 0)
        status = add_list(inputs, word);
    else
        status = add_file(inputs, word);
    DLC_TRY(status);
    return inputs->count > before
               ? DLC_OK
               : dlc_fail(DLC_ERR_DATA, "%s: there are no samples in it", word);
}

size_t dlc_inputs_arrays(const dlc_inputs *inputs) {
    size_t arrays = 0;
    for (size_t i = 0; i < inputs->count; i++)
        arrays += (size_t)is_array(inputs->path[i]);
    return arrays;
}

void dlc_inputs_free(dlc_inputs *inputs) {
    for (size_t i = 0; i < inputs->count; i++)
        dlc_free(inputs->path[i]);
    dlc_free(inputs->path);
    *inputs = (dlc_inputs){0};
}
