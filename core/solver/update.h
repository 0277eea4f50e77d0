/* What an update is of: arenas of parameters, and the solver whose rule changes them.
 * Shared by updater.h and norms.h. */
#ifndef DLC_SOLVER_UPDATE_H
#define DLC_SOLVER_UPDATE_H

#include <dlcore/consistency.h>

#include "solver/ranges.h"
#include "solver/solver.h"

/* Where the arena is not the whole model: what makes norms of parts of it those of the
 * whole. The numbers are in device memory. Calls are collective over the ranks that
 * have the other parts; what they change is there for later work on the queue. Zeroed:
 * there are no other parts. */
typedef struct dlc_norm_peers {
    void *context; /* the first argument of the calls */
    /* *square, the squared norm of the arena's gradient, becomes that of the model's.
     */
    dlc_status (*sum_model)(void *context, double *square);
    /* The squared norms of `count` tensors of which the arena has rows become those of
     * whole tensors. NULL: it has all rows. */
    dlc_status (*sum_rows)(void *context, double *squares, int32_t count);
    const double *square; /* that of the model, measured with another arena; or NULL */
} dlc_norm_peers;

/* What is updated, and by what. */
typedef struct dlc_update_target {
    const dlc_solver *solver; /* with its schedule; must outlive the updater */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue; /* NULL: work is done on return */

    const dlc_segment *segment; /* ascending; must outlive the updater */
    int32_t segments;
    size_t count;                /* elements of the arena without control words */
    const dlc_norm_peers *peers; /* must outlive the updater; NULL: none */

    /* Values in device memory, read when the queue gets there; NULL: none. */

    const dlc_rule_values *values_at; /* of the current iteration */
    dlc_loss_scale *loss_scale;       /* of the gradients */
} dlc_update_target;

/* The update of an iteration for one range of parameters. */
static inline dlc_update dlc_update_of_range(const dlc_update *update,
                                             const dlc_param_range *range) {
    dlc_update made = *update;
    made.lr_mult = range->lr_mult;
    made.decay_mult = range->decay_mult;
    return made;
}

#endif
