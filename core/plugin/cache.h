/* What is known of files that were inspected before, in ~/.cache/dlcore (or under
 * XDG_CACHE_HOME): one file a machine, since a home may be mounted on many, and what
 * works on one may crash on the next. A help only: where it cannot be read or written,
 * is damaged or of another version, it is as if there were none. */
#ifndef DLC_PLUGIN_CACHE_H
#define DLC_PLUGIN_CACHE_H

#include <sys/stat.h>

#include "base/text.h"

/* A report (report.h) on the file that `info` was read from. */
typedef struct dlc_cached {
    const char *path;
    struct stat info;   /* of it: device, inode, size, times */
    const char *report; /* NULL: nothing is to be known of it */
    size_t size;
} dlc_cached;

typedef struct dlc_cache {
    char *bytes; /* own; what path and report point into */
    size_t size;
    dlc_cached *file; /* own */
    size_t files;
} dlc_cache;

/* Start with {0}. Fails only when memory runs out. */
dlc_status dlc_cache_read(dlc_cache *cache);
/* What is known of a file, NULL: nothing, or it has changed since. */
const dlc_cached *dlc_cache_find(const dlc_cache *cache, const char *path,
                                 const struct stat *info);
/* Puts these in its place, and what `before` tells of other files that are still there.
 * The file is replaced whole, so that several processes may read and write it. */
dlc_status dlc_cache_write(const dlc_cached *file, size_t files,
                           const dlc_cache *before);
/* Forgets everything, on the disk. */
void dlc_cache_drop(void);
void dlc_cache_free(dlc_cache *cache);

/* Is it the same, unchanged? */
int dlc_stat_same(const struct stat *a, const struct stat *b);
/* The same file with the same bytes; it may have got another name or other rights. */
int dlc_stat_same_bytes(const struct stat *a, const struct stat *b);

#endif
