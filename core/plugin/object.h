/* Loads one shared object into this process and finds its descriptor. Called by scan.c
 * in the child, and by find.c. */
#ifndef DLC_PLUGIN_OBJECT_H
#define DLC_PLUGIN_OBJECT_H

#include <sys/stat.h>

#include <dlcore/plugin.h>
#include <dlcore/status.h>

/* Loads the file that `info` describes and finds its dlc_plugin_v0; calls none of the
 * plugin's functions. DLC_ERR_PLUGIN with a sentence on failure; DLC_ERR_IO if it may
 * succeed the next time: memory or descriptors ran out, or a disk failed. The object
 * stays loaded until the process ends. */
dlc_status dlc_object_open(const char *path, const struct stat *info,
                           const dlc_plugin **plugin);

/* Calls plugin->load once per process; later calls return the first status and
 * sentence. DLC_ERR_UNAVAILABLE if it says that it cannot work on this machine;
 * DLC_ERR_IO if it fails for another reason, which may not last. */
dlc_status dlc_object_load(const dlc_plugin *plugin);

/* A feature of a plugin whose load was called, or the first one to which a table of
 * calls belongs, and the name of its plugin; NULL if there is none. Any thread. */
const dlc_feature *dlc_object_find(const void *of, const char **plugin);

/* The table of services that every plugin gets when it is loaded: one per process,
 * constant, never NULL. */
const dlc_host *dlc_host_services(void);

/* Checks that a file is a complete shared object for this machine: the dynamic loader
 * maps what the headers say without checking the size of the file, so a truncated
 * download would kill the process. DLC_ERR_PLUGIN with a sentence if it is not;
 * DLC_ERR_IO if it cannot be read now. */
dlc_status dlc_image_check(const char *path);

#endif
