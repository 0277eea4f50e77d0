/* One training iteration, which ends with the update of the weights. The loop (train.c)
 * owns a dlc_iterate.
 *
 *     whole net       read forward backward reduce                      update
 *     accumulation    read forward backward reduce, read forward ...    update
 *     pipeline        read forward forward backward forward ... reduce  update
 *     no samples      reduce                                            update
 *
 * On a device without a queue the iteration is done when dlc_iterate_begin returns.
 * With one it is queued, and the CPU prepares the next iteration meanwhile; from the
 * third on it is a captured graph, if all of its work can be captured.
 *
 * Threads: the training thread. */
#ifndef DLC_TRAIN_ITERATE_H
#define DLC_TRAIN_ITERATE_H

#include "base/process_state.h"
#include "data/upload.h"
#include "parallel/pipeline/pipeline.h"
#include "session/session.h"
#include "train/requests.h"
#include "train/slowdown.h"

/* What the ranks have agreed on in an iteration. */
typedef struct dlc_iterate_result {
    double loss;                /* mean over the global batch */
    double own_loss;            /* this rank's part of it; 0 with a queue */
    unsigned agreed;            /* DLC_JOB_* requests */
    dlc_iteration_time slowest; /* without `seconds` */
} dlc_iterate_result;

typedef struct dlc_iterate {
    dlc_session *session;
    dlc_upload upload;
    int64_t begun;             /* iterations since open */
    dlc_process_state process; /* at open; no plugin may change it */

    dlc_captured_graph *graph;
    int may_capture;

    /* State of the iteration that has begun. */
    int64_t number; /* of its pass */
    dlc_pass pass;
    dlc_batch batch;                /* of the pass, with a pipeline */
    int32_t backwards;              /* of micro-batches, that are done */
    int32_t bucket[DLC_PARAM_SETS]; /* the next to become ready */
    double loss;
    float words[DLC_CONTROL_WORDS]; /* this rank's control words; without a queue */
    int has_result;                 /* without a queue */
    unsigned requested; /* by the loop, beside what the user asks: DLC_JOB_* */
    dlc_requests requests;

    /* Seconds spent on samples since the last dlc_iterate_computed, and in the solver
     * during the current forward or backward. */
    double compute_seconds, solver_seconds;
    double data_seconds; /* waited for samples until the control words were written */
} dlc_iterate;

/* Returns the upload of this session's batches, to be opened by a caller that runs
 * passes without iterations. */
dlc_upload dlc_iterate_upload(const dlc_session *session);

dlc_status dlc_iterate_open(dlc_session *session, dlc_iterate *iterate);
void dlc_iterate_close(dlc_iterate *iterate); /* a zeroed one is allowed */

/* How many iterations may be in flight at once. */
int dlc_iterate_depth(const dlc_iterate *iterate);
int dlc_iterate_in_flight(const dlc_iterate *iterate);

/* Begins the session's next iteration and counts it. Fewer than `depth` may be in
 * flight. */
dlc_status dlc_iterate_begin(dlc_iterate *iterate);
/* Without a queue, or if the session is timed: returns the seconds spent on passes
 * since the last call, without those spent on communication and updates. */
double dlc_iterate_computed(dlc_iterate *iterate);
/* Waits for the oldest iteration in flight and returns its results. */
dlc_status dlc_iterate_end(dlc_iterate *iterate, dlc_iterate_result *result);

#endif
