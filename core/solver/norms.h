/* What an update must know of whole tensors: the norm of all gradients, for clipping
 * and loss scaling, and the norms of each tensor, for rules that take them (LARS,
 * LAMB). Norms are made of sums over fixed pieces of the arena, added in a fixed order,
 * so they are bitwise identical however the arena is sharded over the ranks. Sums and
 * norms stay in device memory, where updates read them. Used by synchronous.c and
 * updater.c.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_NORMS_H
#define DLC_SOLVER_NORMS_H

#include "solver/update.h"

/* The arenas that an update works on, in device memory. */
typedef struct dlc_update_arenas {
    float *weights;
    const float *gradients;
    float *slots[DLC_MAX_SLOTS];
} dlc_update_arenas;

/* Initialize with {0}. */
typedef struct dlc_norms {
    dlc_memory memory; /* own; of what is below */
    double *sums;      /* of the pieces of one arena at a time */
    double *gradient;  /* the squared norm of all gradients */
    double *weight;    /* of each segment's weights; NULL: the rule takes no norms */
    double *norm;      /* of each segment's gradient or slot */
} dlc_norms;

/* Does any update of the target need norms? */
int dlc_norms_are_needed(const dlc_update_target *target);

dlc_status dlc_norms_open(const dlc_update_target *target, dlc_norms *norms);
void dlc_norms_close(const dlc_update_target *target,
                     dlc_norms *norms); /* a zeroed one is allowed */

/* Lets the update of a range read the norms of its tensor. */
void dlc_norms_of_range(const dlc_update_target *target, const dlc_norms *norms,
                        const dlc_param_range *range, dlc_update *update);

/* Updates one range, with its multipliers and the norms of its tensor. */
dlc_status dlc_update_run(const dlc_update_target *target,
                          const dlc_update_arenas *arenas, const dlc_param_range *range,
                          const dlc_norms *norms, const dlc_update *update);

/* Leaves the squared norm of the arena's gradient in norms->gradient. */
dlc_status dlc_norms_of_gradient(const dlc_update_target *target,
                                 const dlc_exchange *exchange,
                                 const dlc_update_arenas *arenas,
                                 const dlc_norms *norms);

/* Takes the norms of an iteration: adapts the loss scale, lets `update` clip, and runs
 * the rule's direction on the ranges. With sharded updates `exchange` gathers sums;
 * NULL if there is no exchange. DLC_ERR_DIVERGED if a gradient is not finite and the
 * device has no queue. */
dlc_status dlc_norms_measure(const dlc_update_target *target,
                             const dlc_exchange *exchange,
                             const dlc_update_arenas *arenas,
                             const dlc_param_ranges *ranges, int64_t iteration,
                             const dlc_norms *norms, dlc_update *update);

#endif
