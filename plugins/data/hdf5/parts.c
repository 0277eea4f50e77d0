/* Finds and opens the files. */
#include "parts.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "../shared/classes.h"

#define LIST_MOST ((int64_t)64 << 20)

void parts_close(parts *of) {
    for (int32_t i = 0; i < of->count; i++) {
        for (int f = 0; f < DLC_FIELDS_MAX; f++)
            layout_free(&of->file[i].at[f]);
        file_close(&of->file[i].in);
        host->free(of->file[i].path);
    }
    host->free(of->file);
    *of = (parts){0};
}

static dlc_status grow(parts *of) {
    int32_t room = of->room ? 2 * of->room : 8;
    part_file *grown = host->alloc((size_t)room * sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    if (of->count)
        memcpy(grown, of->file, (size_t)of->count * sizeof *grown);
    host->free(of->file);
    of->file = grown;
    of->room = room;
    return DLC_OK;
}

/* Opens one more file, whose path is relative to a folder. */
static dlc_status add(parts *to, const char *folder, size_t folder_length,
                      const char *path, size_t length) {
    dlc_status status = to->count == to->room ? grow(to) : DLC_OK;
    if (status != DLC_OK)
        return status;
    part_file *made = &to->file[to->count];
    if (path[0] == '/')
        folder_length = 0;
    *made = (part_file){.in.fd = -1};
    made->path = host->alloc(folder_length + length + 1);
    if (!made->path)
        return DLC_ERR_NOMEM;
    if (folder_length)
        memcpy(made->path, folder, folder_length);
    memcpy(made->path + folder_length, path, length);
    to->count++;
    return file_open(made->path, &made->in);
}

static dlc_status open_matches(const char *pattern, parts *made) {
    glob_t matches;
    int code = glob(pattern, GLOB_NOCHECK | GLOB_ERR, NULL, &matches);
    dlc_status status = DLC_OK;
    if (code)
        return host->fail(code == GLOB_NOSPACE ? DLC_ERR_NOMEM : DLC_ERR_DATA,
                          "%s: cannot be listed: %s", pattern, strerror(errno));
    for (size_t i = 0; status == DLC_OK && i < matches.gl_pathc; i++)
        status = add(made, "", 0, matches.gl_pathv[i], strlen(matches.gl_pathv[i]));
    globfree(&matches);
    return status;
}

static dlc_status open_listed(const char *list, const growing *text, parts *made) {
    const char *slash = strrchr(list, '/');
    size_t folder = slash ? (size_t)(slash + 1 - list) : 0;
    dlc_status status = DLC_OK;
    for (size_t at = 0; status == DLC_OK && at < text->used;) {
        const char *line = text->bytes + at;
        const char *end = memchr(line, '\n', text->used - at);
        size_t length = end ? (size_t)(end - line) : text->used - at;
        at += length + 1;
        while (length && strchr(" \t\r", line[length - 1]) && line[length - 1])
            length--;
        if (length)
            status = add(made, list, folder, line, length);
    }
    if (status == DLC_OK && made->count == 0)
        status = host->fail(DLC_ERR_DATA, "%s: it lists no files", list);
    return status;
}

static dlc_status open_list(const char *path, parts *made) {
    data_file list = {.fd = -1};
    growing text = {0};
    dlc_status status = file_open(path, &list);
    if (status == DLC_OK && list.bytes > LIST_MOST)
        status = host->fail(DLC_ERR_DATA, "%s: too large for a list of files", path);
    if (status == DLC_OK)
        status = growing_add(&text, NULL, (size_t)list.bytes);
    if (status == DLC_OK)
        status = file_read(&list, 0, text.bytes, (size_t)list.bytes);
    if (status == DLC_OK)
        status = open_listed(path, &text, made);
    growing_free(&text);
    file_close(&list);
    return status;
}

dlc_status parts_open(const char *pattern, parts *made) {
    return name_ends_as(pattern, "txt") ? open_list(pattern, made)
                                        : open_matches(pattern, made);
}

const part_file *parts_find(const parts *in, int64_t sample) {
    int32_t low = 0, high = in->count - 1;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (in->file[middle].first <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return &in->file[low];
}
