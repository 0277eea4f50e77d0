/* The table of images: paths and labels, in the order of their numbers. */
#ifndef IMAGES_TABLE_H
#define IMAGES_TABLE_H

#include <dlcore/data.h>

#include "../shared/growing.h"

/* One image: where its path begins, and its class. If images may be of several, `label`
 * is the place of the first in the table's labels. */
typedef struct entry {
    size_t path;
    int32_t label;
    int32_t count; /* of several classes */
} entry;

/* All images. Paths are relative to the root, or absolute, and end with a zero byte. */
typedef struct table {
    growing paths, entries;
    growing labels; /* of int32_t, of images of several classes */
} table;

/* Adds an image of one class, with a path of `length` bytes. */
dlc_status table_add(table *to, const char *path, size_t length, int32_t label);
/* Adds a class to the image that is added next by table_add_several. */
dlc_status table_add_label(table *to, int32_t label);
/* Adds an image of the last `count` classes. */
dlc_status table_add_several(table *to, const char *path, size_t length, int32_t count);
void table_free(table *of);

static inline int64_t table_count(const table *of) {
    return (int64_t)(of->entries.used / sizeof(entry));
}

static inline const entry *table_at(const table *of, int64_t index) {
    return (const entry *)(const void *)of->entries.bytes + index;
}

/* The classes of an image of several. */
static inline const int32_t *table_labels(const table *of, const entry *image) {
    return (const int32_t *)(const void *)of->labels.bytes + image->label;
}

static inline const char *table_path(const table *of, int64_t index) {
    return of->paths.bytes + table_at(of, index)->path;
}

#endif
