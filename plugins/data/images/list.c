/* Reads a list file. Each line is the path of an image, spaces or tabs, and the number
 * of its class, as Caffe's tools write it; a path may have spaces in it. A list of a
 * million lines takes a fraction of a second: it is read at once and searched once. */
#include <string.h>

#include "../shared/file.h"
#include "sources.h"

#define LABEL_MOST 100000000

static dlc_status read_all(const char *path, growing *text) {
    data_file list = {.fd = -1};
    dlc_status status = file_open(path, &list);
    if (status == DLC_OK)
        status = growing_add(text, NULL, (size_t)list.bytes);
    if (status == DLC_OK)
        status = file_read(&list, 0, text->bytes, (size_t)list.bytes);
    file_close(&list);
    return status;
}

static int is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Takes the label off the end of a line; -1: there is none, or it is too large. */
static int64_t take_label(const char *line, size_t *length) {
    size_t end = *length, begin = end;
    int64_t label = 0;
    while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9')
        begin--;
    if (begin == end || begin == 0 || !is_blank(line[begin - 1]))
        return -1;
    for (size_t i = begin; i < end && label <= LABEL_MOST; i++)
        label = 10 * label + (line[i] - '0');
    while (begin > 0 && is_blank(line[begin - 1]))
        begin--;
    *length = begin;
    return begin > 0 && label <= LABEL_MOST ? label : -1;
}

static dlc_status add_line(const char *path, int64_t number, const char *line,
                           size_t length, table *images, int32_t *labels) {
    while (length > 0 && is_blank(line[length - 1]))
        length--;
    if (length == 0)
        return DLC_OK;
    size_t all = length;
    int64_t label = memchr(line, 0, length) ? -1 : take_label(line, &length);
    if (label < 0)
        return host->fail(
            DLC_ERR_DATA,
            "%s:%lld: \"%.*s\" is not the path of an image and the number "
            "of its class",
            path, (long long)number, (int)(all < 200 ? all : 200), line);
    if (label >= *labels)
        *labels = (int32_t)label + 1;
    return table_add(images, line, length, (int32_t)label);
}

dlc_status list_read(const char *path, table *images, int32_t *labels) {
    growing text = {0};
    int64_t number = 1;
    dlc_status status = read_all(path, &text);
    *labels = 0;
    for (size_t at = 0; status == DLC_OK && at < text.used; number++) {
        const char *line = text.bytes + at;
        const char *end = memchr(line, '\n', text.used - at);
        size_t length = end ? (size_t)(end - line) : text.used - at;
        status = add_line(path, number, line, length, images, labels);
        at += length + 1;
    }
    growing_free(&text);
    return status;
}
