/* `dlcore plugin new`: creates a folder that builds, tests and packages a plugin. */
#ifndef DLC_TOOLS_PLUGIN_NEW_H
#define DLC_TOOLS_PLUGIN_NEW_H

#include "base/status.h"

/* Creates `folder` (NULL: <kind>-<name> in the current folder), completely or not at
 * all, and prints how to build it. */
dlc_status dlc_plugin_new(const char *kind, const char *name, const char *folder);

#endif
