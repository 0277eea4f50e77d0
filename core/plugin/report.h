/* The result of inspecting one file: the facts of its descriptor, or why it is refused.
 * A file is inspected in another process (scan.h), so a report can be packed into
 * bytes, sent, and cached (cache.h). */
#ifndef DLC_PLUGIN_REPORT_H
#define DLC_PLUGIN_REPORT_H

#include "base/text.h"
#include "plugin/entry.h"

/* Until when a report is true. */
typedef enum dlc_report_scope {
    DLC_REPORT_ONCE,      /* it may have been chance */
    DLC_REPORT_OF_FILE,   /* until the file changes */
    DLC_REPORT_OF_SYSTEM, /* or what system_stamp.h sums up: a library or a driver may
                             be installed later */
    DLC_REPORT_SCOPES
} dlc_report_scope;

typedef struct dlc_report {
    /* `state` is USABLE, UNAVAILABLE, UNTRIED or REFUSED, that of a feature USABLE if
     * it is valid. There is no path, and no name either if the descriptor could not be
     * read. */
    dlc_plugin_entry plugin;
    dlc_feature_entry *feature; /* own: plugin.feature */
    dlc_report_scope scope;
} dlc_report;

void dlc_report_pack(const dlc_report *report, dlc_text *bytes);

/* Unpacks a report; its strings point into `bytes`, which must stay. DLC_ERR_DATA if
 * they are no report. Release `feature` with dlc_free. */
dlc_status dlc_report_unpack(const char *bytes, size_t size, dlc_report *report);

/* The elements of packed data, in native byte order; a string may be NULL. After the
 * first incomplete element `failed` is set and all reads return 0 or NULL. */
typedef struct dlc_unpacking {
    const char *next;
    size_t left;
    int failed;
} dlc_unpacking;

void dlc_pack_number(dlc_text *bytes, uint64_t number);
void dlc_pack_text(dlc_text *bytes, const char *text);
uint64_t dlc_unpack_number(dlc_unpacking *from);
const char *dlc_unpack_text(dlc_unpacking *from);

#endif
