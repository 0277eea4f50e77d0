/* One shared object: loaded into the process, its descriptor found. */
#ifndef DLC_PLUGIN_OBJECT_H
#define DLC_PLUGIN_OBJECT_H

#include <sys/stat.h>

#include <dlcore/plugin.h>

/* Loads the file that `info` was read from and finds its dlc_plugin_v1; none of
 * the plugin's calls is made. DLC_ERR_PLUGIN with a sentence where that cannot be.
 * What was loaded stays loaded until the process ends. */
dlc_status dlc_object_open(const char *path, const struct stat *info,
                           const dlc_plugin **plugin);

/* Calls plugin->load, once a process: who asks again gets the first answer and
 * the same sentence. */
dlc_status dlc_object_load(const dlc_plugin *plugin);

#endif
