/* Where plugins are looked for, and whether a folder or file may be trusted: what
 * anybody else may write could run anything in our name. */
#ifndef DLC_PLUGIN_SEARCH_H
#define DLC_PLUGIN_SEARCH_H

#include <stddef.h>
#include <sys/stat.h>

#include <dlcore/status.h>

/* realpath, into memory of dlc_alloc. */
dlc_status dlc_path_resolve(const char *path, char **real);

/* The folder for plugins beside this library. DLC_ERR_PLUGIN where it can't be told
 * for certain. */
dlc_status dlc_search_beside(char **folder);

/* The *.so of a folder, sorted by name. DLC_ERR_PLUGIN with a sentence where the
 * folder can't be read or trusted. */
typedef struct dlc_listing {
    char *folder; /* real path */
    char **name;
    size_t names;
} dlc_listing;

dlc_status dlc_listing_read(const char *folder, dlc_listing *listing);
void dlc_listing_free(dlc_listing *listing);

/* May this file of a folder be loaded? `real` (to dlc_free) is its path, all
 * links resolved; `info` what it is, to be compared with what was loaded. */
dlc_status dlc_file_trust(const char *folder, const char *name, char **real,
                          struct stat *info);

/* The same for a path that dlc_file_trust gave, and its folder, once more. */
dlc_status dlc_path_trust(const char *path, struct stat *info);

#endif
