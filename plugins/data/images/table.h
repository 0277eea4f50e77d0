/* The table of images: paths and labels, in the order of their numbers. Also the
 * growing memory that it and others are made of. */
#ifndef IMAGES_TABLE_H
#define IMAGES_TABLE_H

#include <dlcore/data.h>

extern const dlc_host *host; /* set by load */

/* Memory that grows. Start with {0}. */
typedef struct growing {
    char *bytes; /* owned */
    size_t used, room;
} growing;

/* Appends bytes; NULL: none, only room for them. */
dlc_status growing_add(growing *to, const void *bytes, size_t count);
void growing_free(growing *of);

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
