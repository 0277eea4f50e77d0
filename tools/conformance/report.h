/* Implements `dlcore plugin check`: runs the conformance suite on one file and prints
 * the results as text or JSON. */
#ifndef DLC_TOOLS_CONFORMANCE_REPORT_H
#define DLC_TOOLS_CONFORMANCE_REPORT_H

#include <stddef.h>

#include <dlcore/status.h>

typedef struct plugin_check {
    const char *file;
    const char *const *sets; /* "key=value" */
    size_t nsets;
    const char *const *inputs; /* shapes to try layers with, "4x3x8x8,4:int32" */
    size_t ninputs;
    const char *only; /* prefix of the names of the checks to run; NULL: all */
    int verbose;      /* show what the plugin logs and prints to stderr */
    int json;
} plugin_check;

/* Prints the result of each check. Returns DLC_ERR_PLUGIN if any failed, DLC_ERR_CONFIG
 * if any could not be run for want of a setting, or `only` matches none. */
dlc_status dlc_plugin_check_file(const plugin_check *what);

#endif
