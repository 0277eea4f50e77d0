/* Whether a folder or file of plugins can be trusted: whoever can change it, or put
 * another one in its place, could run anything as this user. Trusted is what only root
 * and the effective user can change.
 *
 * A path is walked from the root folder on, and each folder is checked before anything
 * is looked up in it, those that symbolic links lead through as well. So nobody else
 * can exchange any part of the result, now or later, and it is safe to inspect, check
 * and load it by this path. Called by search.c. */
#ifndef DLC_PLUGIN_TRUST_H
#define DLC_PLUGIN_TRUST_H

#include <sys/stat.h>

#include <dlcore/status.h>

/* Checks a folder and all folders above it, but those above `library`, the path of
 * libdlcore without links (NULL: not known): whoever owns them could replace dlcore
 * itself, as the owner of a checkout can in which root of a container builds. *real (to
 * dlc_free) is its path without links. DLC_ERR_PLUGIN with a sentence: which folder,
 * whose it is or its mode, and what to do. */
dlc_status dlc_trust_folder(const char *path, const char *library, char **real);

/* Checks owner and mode of a file; its folder has been checked. */
dlc_status dlc_trust_file(const char *path, struct stat *info);

#endif
