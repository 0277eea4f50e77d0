/* The parts of an update that need gradients of whole tensors: loss scaling, clipping
 * by norm, and the trust of rules that take norms (LARS, LAMB). Called by
 * synchronous.c, once an iteration.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_FULL_GRADIENT_H
#define DLC_SOLVER_FULL_GRADIENT_H

#include "solver/updater.h"

/* The arenas that an update works on, in device memory. */
typedef struct dlc_update_arenas {
    float *weights, *gradients;
    float *slots[DLC_MAX_SLOTS];
} dlc_update_arenas;

/* Updates one range, with its multipliers. */
dlc_status dlc_update_run(const dlc_update_target *target,
                          const dlc_update_arenas *arenas, const dlc_param_range *range,
                          const dlc_update *update);

/* Looks for overflow and adapts the loss scale, then clips by norm: changes grad_scale.
 * *skipped = 1 if the CPU knows that nothing is to be updated; *inverse gets the loss
 * scale's, where the solver needs whole tensors. DLC_ERR_DIVERGED if the gradient is
 * not finite. */
dlc_status dlc_full_gradient_check(const dlc_update_target *target,
                                   const dlc_update_arenas *arenas, int64_t iteration,
                                   dlc_update *update, double *inverse, int *skipped);

/* Updates each range, which is a whole tensor, with its trust; `inverse` is from
 * dlc_full_gradient_check. */
dlc_status dlc_full_gradient_update(const dlc_update_target *target,
                                    const dlc_update_arenas *arenas,
                                    const dlc_param_ranges *ranges, double inverse,
                                    const dlc_update *update);

#endif
