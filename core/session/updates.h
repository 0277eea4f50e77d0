/* Deferred updates: the weights of a bucket are updated when the next forward needs
 * them, so that forward begins while other buckets are still being reduced. Every layer
 * reads the same weights as if forward had waited for all updates.
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_UPDATES_H
#define DLC_SESSION_UPDATES_H

#include <dlcore/consistency.h>

#include "base/status.h"
#include "solver/ema.h"

/* Initialize with {0}. */
typedef struct dlc_updates {
    const dlc_consistency_ops *ops; /* NULL: nothing is deferred */
    dlc_consistency *model;
    const size_t *begin; /* first element of each bucket */
    int32_t buckets;
    const dlc_ema *ema; /* averages a bucket once it is updated */
    char *pending;      /* own; is the bucket's update pending? */
    int32_t count;      /* how many are pending */
    int64_t iteration;  /* the iteration that they belong to */
    double seconds;     /* seconds spent on updates; reset by its reader */
} dlc_updates;

/* The model must have `update`; `begin` (buckets + 1 elements) and `ema` must outlive
 * this. */
dlc_status dlc_updates_open(const dlc_consistency_ops *ops, dlc_consistency *model,
                            const size_t *begin, int32_t buckets, const dlc_ema *ema,
                            dlc_updates *updates);
void dlc_updates_close(dlc_updates *updates); /* a zeroed one is allowed */

/* Backward of an iteration has ended: the updates of all buckets are pending. */
void dlc_updates_defer(dlc_updates *updates, int64_t iteration);

/* Runs pending updates of elements [begin, end); can be dlc_net_args.need. */
dlc_status dlc_updates_need(void *updates, size_t begin, size_t end);

/* Runs all pending updates; a zeroed one is allowed. */
dlc_status dlc_updates_finish(dlc_updates *updates);

#endif
