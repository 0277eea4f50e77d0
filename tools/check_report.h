/* The report of `dlcore check` about nets that were built, as text or JSON. check.c
 * fills it in, rank by rank. */
#ifndef DLCORE_CHECK_REPORT_H
#define DLCORE_CHECK_REPORT_H

#include "base/json.h"
#include "check_mistakes.h"
#include "run/memory.h"

/* Initialize the first four fields, everything else with 0. */
typedef struct check_report {
    check_mistakes *mistakes;
    int32_t ranks; /* of a job on this machine */
    int json_wanted;
    int is_divided; /* with several ranks, each holds a part of the net */
    dlc_json json;
    /* Totals of the whole net, if ranks hold parts of it. */
    dlc_memory_sum memory;
    int32_t shown;
    int64_t parameters, multiply_adds;
    uint64_t peak;
} check_report;

/* Reports a net that is the same on every rank. */
dlc_status check_report_net(check_report *report, const dlc_session *session);
/* Reports the part of the net that this rank holds, and others after it. */
dlc_status check_report_part(check_report *report, const dlc_session *session);
/* Prints the end of the report. If `status` is an error, returns it. */
dlc_status check_report_end(check_report *report, dlc_status status);

#endif
