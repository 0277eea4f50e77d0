/* Norms of gradients, weights and slots, and what follows from them. They are read on
 * the CPU, so iterations that need them are not captured. */
#include "solver/full_gradient.h"

#include <math.h>

#include "base/status.h"

dlc_status dlc_update_run(const dlc_update_target *target,
                          const dlc_update_arenas *arenas, const dlc_param_range *range,
                          const dlc_update *update) {
    dlc_update made = dlc_update_of_range(update, range);
    float *slots[DLC_MAX_SLOTS] = {0};
    for (int32_t i = 0; i < target->solver->slots; i++)
        slots[i] = arenas->slots[i] + range->begin;
    return target->device_ops->update(target->device, target->queue, range->count,
                                      &made, arenas->gradients + range->begin, slots,
                                      arenas->weights + range->begin);
}

/* ---- Loss scale -------------------------------------------------------------- */

/* Looks for overflow in all gradients and adapts the loss scale. */
static dlc_status check_overflow(const dlc_update_target *target,
                                 const dlc_update_arenas *arenas) {
    enum { PATIENCE = 2000 };
    return target->device_ops->update_loss_scale(target->device, target->queue,
                                                 target->count, arenas->gradients,
                                                 PATIENCE, target->loss_scale);
}

/* Reads the factor by which gradients are scaled, when the queue has got there. */
static dlc_status read_loss_scale(const dlc_update_target *target, double *inverse,
                                  int *overflow) {
    const dlc_device_ops *ops = target->device_ops;
    dlc_loss_scale now = {.inverse = 1};
    if (target->loss_scale) {
        if (target->queue)
            DLC_TRY(ops->queues->queue_sync(target->device, target->queue));
        DLC_TRY(ops->copy(target->device, NULL, &now, target->loss_scale, sizeof now));
    }
    *inverse = (double)now.inverse;
    *overflow = now.overflow != 0;
    return DLC_OK;
}

/* ---- Norms and clipping
 * ---------------------------------------------------------------- */

static dlc_status norm_of(const dlc_update_target *target, const float *at,
                          size_t count, double *norm) {
    double square = 0;
    DLC_TRY(
        target->device_ops->norm2(target->device, target->queue, count, at, &square));
    *norm = sqrt(square);
    return DLC_OK;
}

/* Scales the gradient down to the norm allowed (Pascanu et al., "On the difficulty of
 * training recurrent neural networks", 2013, algorithm 1) through grad_scale. */
static dlc_status clip(const dlc_update_target *target, const dlc_update_arenas *arenas,
                       int64_t iteration, double inverse, dlc_update *update) {
    double norm = 0, most = target->solver->clip_norm;
    DLC_TRY(norm_of(target, arenas->gradients, target->count, &norm));
    if (!isfinite(norm))
        return dlc_fail(DLC_ERR_DIVERGED,
                        "the gradient is not finite at iteration %lld; lower the "
                        "learning rate (%g)",
                        (long long)iteration,
                        dlc_solver_learning_rate(target->solver, iteration));
    norm = norm * inverse * update->grad_scale;
    if (norm > most)
        update->grad_scale = (float)(update->grad_scale * most / norm);
    return DLC_OK;
}

dlc_status dlc_full_gradient_check(const dlc_update_target *target,
                                   const dlc_update_arenas *arenas, int64_t iteration,
                                   dlc_update *update, double *inverse, int *skipped) {
    *inverse = 1;
    *skipped = 0;
    if (target->loss_scale)
        DLC_TRY(check_overflow(target, arenas));
    if (!dlc_solver_needs_whole_tensors(target->solver))
        return DLC_OK; /* the device reads the loss scale itself */
    DLC_TRY(read_loss_scale(target, inverse, skipped));
    if (*skipped || target->solver->clip_norm <= 0)
        return DLC_OK;
    return clip(target, arenas, iteration, *inverse, update);
}

/* ---- Trust ------------------------------------------------------------------- */

/* The norm of the direction of one tensor, as the solver asks for it. */
static dlc_status direction_norm(const dlc_update_target *target,
                                 const dlc_update_arenas *arenas,
                                 const dlc_param_range *range, double scale,
                                 double *norm) {
    const dlc_solver_needs *needs = &target->solver->needs;
    if (needs->norms == DLC_NORMS_SLOT)
        return norm_of(target, arenas->slots[needs->norm_slot] + range->begin,
                       range->count, norm);
    DLC_TRY(norm_of(target, arenas->gradients + range->begin, range->count, norm));
    *norm *= scale;
    return DLC_OK;
}

static dlc_status update_tensor(const dlc_update_target *target,
                                const dlc_update_arenas *arenas,
                                const dlc_param_range *range, double scale,
                                const dlc_update *update) {
    const dlc_solver *solver = target->solver;
    double weight_norm = 0, norm = 0;
    dlc_update made = *update;
    if (solver->needs.direction) {
        made.rule = solver->needs.direction;
        DLC_TRY(dlc_update_run(target, arenas, range, &made));
        made.rule = solver->needs.rule;
    }
    DLC_TRY(
        norm_of(target, arenas->weights + range->begin, range->count, &weight_norm));
    DLC_TRY(direction_norm(target, arenas, range, scale, &norm));
    made.trust = solver->ops->trust(solver->settings, &update->values,
                                    (double)range->decay_mult, weight_norm, norm);
    return dlc_update_run(target, arenas, range, &made);
}

dlc_status dlc_full_gradient_update(const dlc_update_target *target,
                                    const dlc_update_arenas *arenas,
                                    const dlc_param_ranges *ranges, double inverse,
                                    const dlc_update *update) {
    double scale = inverse * (double)update->grad_scale;
    for (size_t i = 0; i < ranges->first[ranges->buckets]; i++)
        DLC_TRY(update_tensor(target, arenas, &ranges->at[i], scale, update));
    return DLC_OK;
}
