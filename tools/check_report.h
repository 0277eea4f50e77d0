/* What `dlcore check` says of nets that were built, for people or as JSON. */
#ifndef DLCORE_CHECK_REPORT_H
#define DLCORE_CHECK_REPORT_H

#include "base/json.h"
#include "check_mistakes.h"
#include "train/memory.h"
#include "train/pipeline/pipeline.h"

/* Start with the first four set, all else 0. */
typedef struct check_report {
    check_mistakes *mistakes;
    int32_t ranks; /* of a job on this machine */
    int json_wanted;
    int has_plan; /* layers or stages are shared out as soon as there are ranks */
    dlc_json json;
    /* Of the whole net, where ranks have parts of it. */
    dlc_memory_sum memory;
    int32_t shown;
    int64_t parameters, multiply_adds;
    uint64_t peak;
} check_report;

/* A net that every rank has. */
dlc_status check_report_net(check_report *report, const dlc_session *session);
/* The part that `count` ranks from this one on have. */
dlc_status check_report_ranks(check_report *report, const dlc_session *session,
                              int32_t count);
/* Prints what is left to print, unless `status` is an error, which is passed on. */
dlc_status check_report_end(check_report *report, dlc_status status);

#endif
