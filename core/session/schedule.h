/* The schedule of an iteration: the order in which a rank reads batches, runs forward
 * and backward, reduces and updates.
 *
 *     whole net       read forward backward reduce                      update
 *     accumulation    read forward backward reduce, read forward ...    update
 *     1F1B            read forward forward backward forward ... reduce  update
 *     no samples      reduce                                            update
 *
 * An iteration has as many passes as accumulation steps; what is between `read` and
 * `reduce` of a pass is up to a table: the whole net's, or that of an axis
 * (session_schedule.h).
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_SCHEDULE_H
#define DLC_SESSION_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlc_work {
    DLC_WORK_READ, /* the batch of a pass */
    DLC_WORK_FORWARD,
    DLC_WORK_BACKWARD,
    DLC_WORK_REDUCE, /* control words, and what is left of the gradients of a pass */
    DLC_WORK_UPDATE,
    DLC_WORK_DONE,
} dlc_work;

/* A pass, as its caller sees it. */
typedef struct dlc_pass {
    const struct dlc_batch *batch; /* NULL: none is read, or the net has it already */
    int64_t iteration;             /* the feed's number of the batch */
    double *loss; /* to which this rank's part of the mean loss is added, or NULL */
    dlc_status (*ready)(void *context, int32_t set, size_t elements); /* dlc_net_done */
    void *context;
} dlc_pass;

typedef struct dlc_schedule_ops {
    int sets_input; /* forward makes parts of pass->batch the net's input */
    dlc_status (*begin)(void *context); /* a pass; NULL: nothing to do */
    /* FORWARD or BACKWARD of a micro-batch, or DONE; `done`: how many of this pass are
     * done. May wait for other ranks. */
    dlc_status (*next)(void *context, int32_t done, dlc_work *work,
                       int32_t *micro_batch);
    dlc_status (*forward)(void *context, const dlc_pass *pass, int32_t micro_batch);
    dlc_status (*backward)(void *context, const dlc_pass *pass, int32_t micro_batch);
} dlc_schedule_ops;

typedef struct dlc_schedule {
    const dlc_schedule_ops *ops; /* NULL: this rank has no samples */
    void *context;
    int32_t passes;
    /* State. */
    int32_t pass, done;
    dlc_work last;
    int32_t micro_batch; /* of the work that was returned last */
} dlc_schedule;

/* What to do next; DLC_WORK_DONE after the update. */
dlc_status dlc_schedule_next(dlc_schedule *schedule, dlc_work *work);

#endif
