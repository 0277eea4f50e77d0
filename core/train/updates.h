/* Updates that come late: the weights of a bucket are updated when the next forward
 * needs them, so that forward begins while other buckets are still being summed. The
 * weights that a layer reads are those of a step that waited for all.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_UPDATES_H
#define DLC_TRAIN_UPDATES_H

#include <dlcore/solver.h>

#include "base/status.h"

/* Start with {0}. */
typedef struct dlc_updates {
    const dlc_solver_ops *ops; /* NULL: nothing comes late */
    dlc_solver *solver;
    const size_t *begin; /* of the buckets */
    int32_t buckets;
    char *due;         /* own; one a bucket */
    int32_t count;     /* how many are due */
    int64_t iteration; /* that they belong to */
    double spent;      /* seconds on updates; its reader sets it back */
} dlc_updates;

/* `solver` has `update`; `begin` (buckets + 1 elements) stays. */
dlc_status dlc_updates_open(const dlc_solver_ops *ops, dlc_solver *solver,
                            const size_t *begin, int32_t buckets, dlc_updates *updates);
void dlc_updates_close(dlc_updates *updates); /* a zeroed one is allowed */

/* Backward of an iteration has ended: every bucket is due. */
void dlc_updates_put_off(dlc_updates *updates, int64_t iteration);

/* Updates what is due of elements [begin, end); fits dlc_net_args.need. */
dlc_status dlc_updates_need(void *updates, size_t begin, size_t end);

/* Updates all that is due; a zeroed one is allowed. */
dlc_status dlc_updates_finish(dlc_updates *updates);

#endif
