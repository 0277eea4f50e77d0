/* What is known about inspected files, kept in ~/.cache/dlcore (or under
 * XDG_CACHE_HOME): one file for each machine, since a home may be shared and a plugin
 * that works on one machine may crash on another. It is only an optimization: if it
 * cannot be read or written, is damaged or of another version, it is ignored. Used by
 * registry.c. */
#ifndef DLC_PLUGIN_CACHE_H
#define DLC_PLUGIN_CACHE_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/text.h"

/* A report (entry.h) about the file that `info` describes. */
typedef struct dlc_cached {
    const char *path;
    struct stat info;   /* device, inode, size, times */
    const char *report; /* NULL: do not cache it */
    size_t size;
    uint64_t system; /* the dlc_system_stamp that it depends on; 0: on the file alone */
} dlc_cached;

typedef struct dlc_cache {
    char *bytes; /* own; path and report point into it */
    size_t size;
    dlc_cached *file; /* own */
    size_t files;
} dlc_cache;

/* Reads the cache file. Start with {0}. Fails only if memory runs out. */
dlc_status dlc_cache_read(dlc_cache *cache);
/* The entry of a file; NULL if there is none, or the file has changed since, or the
 * system, on which the entry depends. */
const dlc_cached *dlc_cache_find(const dlc_cache *cache, const char *path,
                                 const struct stat *info, uint64_t system);
/* Writes these entries, and those of `before` for other files that still exist. The
 * cache file is replaced atomically, so several processes may read and write it. */
dlc_status dlc_cache_write(const dlc_cached *file, size_t files,
                           const dlc_cache *before);
/* Deletes the cache file. */
void dlc_cache_drop(void);
void dlc_cache_free(dlc_cache *cache);

/* FNV-1a, 64 bits. */
uint64_t dlc_cache_checksum(const char *bytes, size_t size);

/* Whether two stats describe the same file with the same contents; its name or mode may
 * differ. */
int dlc_stat_same_bytes(const struct stat *a, const struct stat *b);

/* A number that sums up what the verdict on a plugin may depend on besides its file: it
 * changes when a plugin that could not be used may have become usable, as a library may
 * be installed, a device appear, or a variable hide it; and once an hour for what
 * cannot be seen. Never 0. */
uint64_t dlc_system_stamp(void);

#endif
