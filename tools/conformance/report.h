/* dlcore plugin check: the conformance suite on one file. */
#ifndef DLC_TOOLS_CONFORMANCE_REPORT_H
#define DLC_TOOLS_CONFORMANCE_REPORT_H

#include <stddef.h>

#include <dlcore/status.h>

typedef struct plugin_check {
    const char *file;
    const char *const *sets; /* "key=value" */
    size_t nsets;
    const char *only; /* beginning of the names of the checks to run; NULL: all */
    int json;
} plugin_check;

/* Prints what came of each check. DLC_ERR_PLUGIN if one failed. */
dlc_status dlc_plugin_check_file(const plugin_check *what);

#endif
