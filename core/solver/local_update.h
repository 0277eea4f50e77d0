/* The update of arenas outside a session's exchange: rows of tensor-parallel layers,
 * and what `dlcore time` measures. Accumulation, updater and consistency model in one.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_LOCAL_UPDATE_H
#define DLC_SOLVER_LOCAL_UPDATE_H

#include "solver/accumulate.h"
#include "solver/updater.h"

/* Initialize with {0}. It must not move while it is open. */
typedef struct dlc_local_update {
    dlc_accumulator accumulator;
    dlc_solver_updater *updater;
    const dlc_consistency_ops *ops;
    dlc_consistency *model;
    size_t border[2];
    dlc_exchange exchange; /* if there is nothing to reduce */
    const dlc_exchange *reduction;
    int is_late; /* set before: the model is told in finish that gradients are ready */
} dlc_local_update;

/* `args`: what the model `ops` is created with, but for the updater; the arenas have
 * `target->count` elements. Its exchange is of one bucket, over the ranks that have a
 * part in the gradients; NULL: no other rank has. `steps`: passes of an iteration. On
 * failure the caller still closes it. */
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

/* Between the two, where updates need norms: the squared norm of the gradients, reduced
 * unless it is late, in device memory; NULL if `update` is not open. */
dlc_status dlc_local_update_gradient_square(const dlc_local_update *update,
                                            const double **square);

#endif
