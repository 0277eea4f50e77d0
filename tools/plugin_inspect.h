/* `dlcore plugin inspect`: shows everything about a plugin, a feature, a file, or a
 * section of net.ini. Called by plugin.c. */
#ifndef DLC_TOOLS_PLUGIN_INSPECT_H
#define DLC_TOOLS_PLUGIN_INSPECT_H

#include <stddef.h>

#include <dlcore/status.h>

typedef struct plugin_inspection {
    const char *name;   /* of a plugin, a feature or a section, or a file; NULL: all */
    const char *device; /* only features that work on it; NULL: the default device */
    int all;            /* features of all devices */
    int json;
} plugin_inspection;

/* Prints it on stdout. */
dlc_status dlc_plugin_inspect(const plugin_inspection *what);

/* The name of a refused plugin may be anything: escaped for a terminal and shortened.
 */
const char *dlc_plugin_printable(const char *name, char *text, size_t bytes);

#endif
