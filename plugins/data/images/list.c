/* Reads a list file. Each line is the path of an image, spaces or tabs, and the number
 * of its class, or several, as Caffe's tools write it; a path may have spaces in it. A
 * list of a million lines takes a fraction of a second: it is read at once and searched
 * once. */
#include <string.h>

#include "../shared/file.h"
#include "sources.h"

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

/* What take_label finds instead of a label, which may be DLC_LABEL_NONE. */
enum { NO_LABEL = -2, WRONG_LABEL = -3 };

/* Takes the label off the end of a line; wrong ones are too large, or without a path.
 */
static int32_t take_label(const char *line, size_t *length) {
    size_t end = *length, begin = end, digits = 0;
    int32_t label;
    while (begin > 0 && !is_blank(line[begin - 1])) {
        begin--;
        digits += line[begin] >= '0' && line[begin] <= '9';
    }
    if (!begin || !label_parse(line + begin, end - begin, &label))
        return begin && digits == end - begin ? WRONG_LABEL : NO_LABEL;
    while (begin > 0 && is_blank(line[begin - 1]))
        begin--;
    *length = begin;
    return begin ? label : WRONG_LABEL;
}

/* The list that is being read. */
typedef struct list {
    const char *path;
    int64_t line;
    int several; /* an image may be of several classes */
    table *images;
    int32_t *labels;
} list;

static dlc_status refuse(const list *in, const char *line, size_t length) {
    return host->fail(DLC_ERR_DATA,
                      "%s:%lld: \"%.*s\" is not the path of an image and the number "
                      "of its class",
                      in->path, (long long)in->line, (int)(length < 200 ? length : 200),
                      line);
}

static void count_label(const list *in, int32_t label) {
    if (label >= *in->labels)
        *in->labels = label + 1;
}

/* A path, and any number of labels. */
static dlc_status add_several(const list *in, const char *line, size_t length) {
    size_t all = length;
    int32_t count = 0;
    dlc_status status = DLC_OK;
    while (status == DLC_OK) {
        int32_t label = take_label(line, &length);
        if (label == WRONG_LABEL || label == DLC_LABEL_NONE)
            return refuse(in, line, all);
        if (label == NO_LABEL)
            return table_add_several(in->images, line, length, count);
        count_label(in, label);
        count++;
        status = table_add_label(in->images, label);
    }
    return status;
}

static dlc_status add_line(const list *in, const char *line, size_t length) {
    while (length > 0 && is_blank(line[length - 1]))
        length--;
    if (length == 0)
        return DLC_OK;
    if (memchr(line, 0, length))
        return refuse(in, line, length);
    if (in->several)
        return add_several(in, line, length);
    size_t all = length;
    int32_t label = take_label(line, &length);
    if (label < DLC_LABEL_NONE)
        return refuse(in, line, all);
    count_label(in, label);
    return table_add(in->images, line, length, label);
}

/* Editors of other systems begin UTF-8 with a byte order mark, which is no part of the
 * first path. */
enum { MARK_BYTES = 3 };

static int begins_with_mark(const growing *text) {
    return text->used >= MARK_BYTES &&
           memcmp(text->bytes, "\xef\xbb\xbf", MARK_BYTES) == 0;
}

dlc_status list_read(const char *path, int several, table *images, int32_t *labels) {
    growing text = {0};
    list in = {.path = path, .several = several, .images = images, .labels = labels};
    dlc_status status = read_all(path, &text);
    *labels = 0;
    size_t mark = begins_with_mark(&text) ? MARK_BYTES : 0;
    for (size_t at = mark; status == DLC_OK && at < text.used;) {
        const char *line = text.bytes + at;
        const char *end = memchr(line, '\n', text.used - at);
        size_t length = end ? (size_t)(end - line) : text.used - at;
        in.line++;
        status = add_line(&in, line, length);
        at += length + 1;
    }
    growing_free(&text);
    return status;
}
