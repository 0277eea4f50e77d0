/* The table of images: paths and labels, in the order of their numbers. */
#ifndef IMAGES_TABLE_H
#define IMAGES_TABLE_H

#include <dlcore/data.h>

#include "../shared/growing.h"

/* One image: where its path begins, and its class. */
typedef struct entry {
    size_t path;
    int32_t label;
} entry;

/* All images. Paths are relative to the root, or absolute, and end with a zero byte. */
typedef struct table {
    growing paths, entries;
} table;

/* Adds an image with a path of `length` bytes. */
dlc_status table_add(table *to, const char *path, size_t length, int32_t label);
void table_free(table *of);

static inline int64_t table_count(const table *of) {
    return (int64_t)(of->entries.used / sizeof(entry));
}

static inline const entry *table_at(const table *of, int64_t index) {
    return (const entry *)(const void *)of->entries.bytes + index;
}

static inline const char *table_path(const table *of, int64_t index) {
    return of->paths.bytes + table_at(of, index)->path;
}

#endif
