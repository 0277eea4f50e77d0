/* `dlcore plugin inspect`: everything about a plugin, about what plugins offer under
 * one name, about a file, or about a section of net.ini. */
#ifndef DLC_TOOLS_PLUGIN_INSPECT_H
#define DLC_TOOLS_PLUGIN_INSPECT_H

#include <stddef.h>

#include <dlcore/status.h>

typedef struct plugin_inspection {
    const char *name;   /* of a plugin, a feature or a section, or a file; NULL: all */
    const char *device; /* what works on this one alone; NULL: by default */
    int all;            /* whatever device it works on */
    int json;
} plugin_inspection;

/* Prints it on stdout. */
dlc_status dlc_plugin_inspect(const plugin_inspection *what);

/* A refused name may be anything: without what controls a terminal, and cut to fit. */
const char *dlc_plugin_printable(const char *name, char *text, size_t bytes);

#endif
