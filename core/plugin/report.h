/* What the inspection of one file told: its descriptor's facts, or why it is refused.
 * The file is inspected in another process (scan.h), so a report is one piece of bytes,
 * which can be sent and kept (cache.h). */
#ifndef DLC_PLUGIN_REPORT_H
#define DLC_PLUGIN_REPORT_H

#include "base/text.h"
#include "plugin/registry.h"

typedef struct dlc_report {
    /* `state` is USABLE, UNAVAILABLE, UNTRIED or REFUSED, a feature's USABLE where it
     * is sound. No path; no name either where the descriptor could not be read. */
    dlc_plugin_entry plugin;
    dlc_feature_entry *feature; /* own: plugin.feature */
    int lasting; /* follows from the file alone: true until that changes */
} dlc_report;

void dlc_report_pack(const dlc_report *report, dlc_text *bytes);

/* Every text of the report points into the bytes, which must stay. DLC_ERR_DATA where
 * they are no report. Release `feature` with dlc_free. */
dlc_status dlc_report_unpack(const char *bytes, size_t size, dlc_report *report);

/* Their elements, in this machine's order of bytes; a text may be NULL. Reading stops
 * at the first that isn't whole: `failed` is set, and 0 and NULL come back. */
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
