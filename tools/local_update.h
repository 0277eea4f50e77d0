/* The update of a part of the arenas by one rank alone, as `dlcore time` measures it.
 * Accumulation, updater and consistency model in one.
 *
 * Threads: the train thread. */
#ifndef DLC_TOOLS_LOCAL_UPDATE_H
#define DLC_TOOLS_LOCAL_UPDATE_H

#include "solver/accumulate.h"
#include "solver/updater.h"

/* Initialize with {0}. It must not move while it is open. */
typedef struct dlc_local_update {
    dlc_accumulator accumulator;
    dlc_solver_updater *updater;
    const dlc_consistency_ops *ops;
    dlc_consistency *model;
    size_t border[2];
    dlc_exchange exchange; /* of nothing */
} dlc_local_update;

/* `args`: what the model `ops` is created with, but for updater and exchange; the
 * arenas have `target->count` elements. `steps`: passes of an iteration. On failure the
 * caller still closes it. */
dlc_status dlc_local_update_open(const dlc_update_target *target,
                                 const dlc_consistency_ops *ops,
                                 const dlc_consistency_args *args, int32_t steps,
                                 dlc_local_update *update);
void dlc_local_update_close(dlc_local_update *update); /* a zeroed one is allowed */

/* The gradients of a micro-batch are complete; of all micro-batches: updates the
 * weights. They do nothing if `update` is not open. */
dlc_status dlc_local_update_ready(const dlc_local_update *update, int64_t iteration,
                                  int32_t micro_batch);
dlc_status dlc_local_update_finish(const dlc_local_update *update, int64_t iteration);

#endif
