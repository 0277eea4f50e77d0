/* Where plugins are searched; only what can be trusted is found. Called by registry.c,
 * find.c and `dlcore plugin check`. */
#ifndef DLC_PLUGIN_SEARCH_H
#define DLC_PLUGIN_SEARCH_H

#include <stddef.h>
#include <sys/stat.h>

#include <dlcore/status.h>

/* The folder of plugins beside this library. DLC_ERR_PLUGIN if it cannot be determined
 * reliably. */
dlc_status dlc_search_default(char **folder);

/* The *.so files of a folder, sorted by name. DLC_ERR_PLUGIN with a sentence if the
 * folder cannot be read or trusted. */
typedef struct dlc_listing {
    char *folder; /* its real path */
    char **name;
    size_t names;
} dlc_listing;

dlc_status dlc_listing_read(const char *folder, dlc_listing *listing);
void dlc_listing_free(dlc_listing *listing);

/* Checks that a file of a folder may be loaded. *real (to dlc_free) is its path with
 * all links resolved; *info is compared later with what was loaded. */
dlc_status dlc_file_trust(const char *folder, const char *name, char **real,
                          struct stat *info);

/* Checks a path without links, such as one that dlc_file_trust has returned, and its
 * folder. */
dlc_status dlc_path_trust(const char *path, struct stat *info);

#endif
