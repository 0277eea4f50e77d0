/* dlcore plugin new: a folder that builds, tests and packages a plugin at once. */
#ifndef DLC_TOOLS_PLUGIN_NEW_H
#define DLC_TOOLS_PLUGIN_NEW_H

#include "base/status.h"

/* Makes the folder (NULL: <kind>-<name> in the current one), whole or not at all, and
 * prints what to do in it. */
dlc_status dlc_plugin_new(const char *kind, const char *name, const char *folder);

#endif
