/* Sums of squares over the pieces of this rank's shards, gathered from all ranks and
 * added up by the device; then what other parts of the model have. */
#include "solver/norms.h"

#include <math.h>

#include "base/status.h"
#include "plugin/device_objects.h"

static int takes_tensor_norms(const dlc_update_target *target) {
    return target->solver->needs.norms != DLC_NORMS_NONE;
}

static const double *square_elsewhere(const dlc_update_target *target) {
    return target->peers ? target->peers->square : NULL;
}

/* Is the norm of the model's gradient to be measured, with this arena? */
static int takes_whole_norm(const dlc_update_target *target) {
    return (target->loss_scale || target->solver->clip_norm > 0) &&
           !square_elsewhere(target);
}

int dlc_norms_are_needed(const dlc_update_target *target) {
    return target->loss_scale || dlc_solver_needs_whole_tensors(target->solver);
}

static size_t pieces(size_t count) {
    return (count + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
}

dlc_status dlc_norms_open(const dlc_update_target *target, dlc_norms *norms) {
    size_t tensors = takes_tensor_norms(target) ? (size_t)target->segments : 0;
    size_t numbers = pieces(target->count) + 1 + 2 * tensors;
    if (!dlc_norms_are_needed(target))
        return DLC_OK;
    for (size_t s = 0; s < tensors; s++)
        if (target->segment[s].offset % DLC_SQUARE_PIECE != 0)
            return dlc_fail(DLC_ERR_INTERNAL, "segment %s begins inside a piece",
                            target->segment[s].name);
    DLC_TRY(dlc_device_alloc(target->device_ops, target->device,
                             numbers * sizeof(double), 0, &norms->memory));
    norms->sums = norms->memory.base;
    /* Nobody takes the norms of tensors that are not updated, but peers add them. */
    DLC_TRY(target->device_ops->fill(target->device, NULL, norms->sums, 0,
                                     numbers * sizeof(double)));
    norms->gradient = norms->sums + pieces(target->count);
    norms->weight = tensors ? norms->gradient + 1 : NULL;
    norms->norm = tensors ? norms->weight + tensors : NULL;
    return DLC_OK;
}

void dlc_norms_close(const dlc_update_target *target, dlc_norms *norms) {
    dlc_device_free(target->device_ops, target->device, &norms->memory);
    *norms = (dlc_norms){.sums = NULL};
}

void dlc_norms_of_range(const dlc_update_target *target, const dlc_norms *norms,
                        const dlc_param_range *range, dlc_update *update) {
    if (!norms->weight)
        return;
    update->weight_square = norms->weight + range->segment;
    update->norm_square = norms->norm + range->segment;
    update->norm_of_gradient = target->solver->needs.norms == DLC_NORMS_GRADIENT;
}

dlc_status dlc_update_run(const dlc_update_target *target,
                          const dlc_update_arenas *arenas, const dlc_param_range *range,
                          const dlc_norms *norms, const dlc_update *update) {
    dlc_update made = dlc_update_of_range(update, range);
    float *slots[DLC_MAX_SLOTS] = {0};
    for (int32_t i = 0; i < target->solver->slots; i++)
        slots[i] = arenas->slots[i] + range->slot_begin;
    dlc_norms_of_range(target, norms, range, &made);
    return target->device_ops->update(target->device, target->queue, range->count,
                                      &made, arenas->gradients + range->begin, slots,
                                      arenas->weights + range->begin);
}

/* ---- Sums ------------------------------------------------------------------------ */

static dlc_status sum_elements(const dlc_update_target *target, const dlc_norms *norms,
                               size_t begin, size_t end, const float *at) {
    end = end < target->count ? end : target->count;
    return begin < end
               ? target->device_ops->square_sums(target->device, target->queue,
                                                 end - begin, at,
                                                 norms->sums + begin / DLC_SQUARE_PIECE)
               : DLC_OK;
}

/* Sums the squares of an arena, by all ranks if updates are sharded. Padding is 0 and
 * adds nothing. */
static dlc_status sum_arena(const dlc_update_target *target,
                            const dlc_exchange *exchange, const dlc_norms *norms,
                            const float *arena, int is_slot) {
    if (!exchange || !exchange->shard_begin)
        return sum_elements(target, norms, 0, target->count, arena);
    for (int32_t b = 0; b < exchange->buckets; b++) {
        size_t begin = exchange->shard_begin[b];
        DLC_TRY(sum_elements(target, norms, begin, exchange->shard_end[b],
                             arena + (is_slot ? exchange->slot_begin[b] : begin)));
    }
    return exchange->gather_sums(exchange->context, norms->sums);
}

/* Adds up the sums of each tensor. */
static dlc_status add_tensors(const dlc_update_target *target, const dlc_norms *norms,
                              double *total) {
    for (int32_t s = 0; s < target->segments; s++) {
        const dlc_segment *segment = &target->segment[s];
        if (segment->lr_mult != 0)
            DLC_TRY(target->device_ops->total(
                target->device, target->queue, pieces(segment->count),
                norms->sums + segment->offset / DLC_SQUARE_PIECE, total + s));
    }
    const dlc_norm_peers *peers = target->peers;
    return peers && peers->sum_rows
               ? peers->sum_rows(peers->context, total, target->segments)
               : DLC_OK;
}

/* ---- The gradient ---------------------------------------------------------------- */

/* With a queue nobody waits for the norm: the loss of the next iteration shows it. */
static dlc_status check_finite(const dlc_update_target *target, const double *at,
                               int64_t iteration) {
    double square = 0;
    if (target->queue || target->loss_scale)
        return DLC_OK;
    DLC_TRY(target->device_ops->copy(target->device, NULL, &square, at, sizeof square));
    if (isfinite(square))
        return DLC_OK;
    return dlc_fail(DLC_ERR_DIVERGED,
                    "the gradient is not finite at iteration %lld; lower the "
                    "learning rate (%g)",
                    (long long)iteration,
                    dlc_solver_learning_rate(target->solver, iteration));
}

static dlc_status clip(const dlc_update_target *target, const double *square,
                       int64_t iteration, dlc_update *update) {
    if (target->solver->clip_norm <= 0)
        return DLC_OK;
    update->gradient_square = square;
    update->clip_norm = (float)target->solver->clip_norm;
    return check_finite(target, square, iteration);
}

static dlc_status total_gradient(const dlc_update_target *target,
                                 const dlc_norms *norms) {
    return target->device_ops->total(target->device, target->queue,
                                     pieces(target->count), norms->sums,
                                     norms->gradient);
}

dlc_status dlc_norms_of_gradient(const dlc_update_target *target,
                                 const dlc_exchange *exchange,
                                 const dlc_update_arenas *arenas,
                                 const dlc_norms *norms) {
    DLC_TRY(sum_arena(target, exchange, norms, arenas->gradients, 0));
    return total_gradient(target, norms);
}

/* The norm of the model's gradient, once the sums of this arena are taken. */
static dlc_status measure_model(const dlc_update_target *target,
                                const dlc_norms *norms) {
    enum { PATIENCE = 2000 }; /* Micikevicius et al. 2018 */
    const dlc_device_ops *ops = target->device_ops;
    const dlc_norm_peers *peers = target->peers;
    DLC_TRY(total_gradient(target, norms));
    if (peers && peers->sum_model)
        DLC_TRY(peers->sum_model(peers->context, norms->gradient));
    return target->loss_scale
               ? ops->update_loss_scale(target->device, target->queue, norms->gradient,
                                        PATIENCE, target->loss_scale)
               : DLC_OK;
}

static dlc_status measure_gradient(const dlc_update_target *target,
                                   const dlc_exchange *exchange,
                                   const dlc_update_arenas *arenas, int64_t iteration,
                                   const dlc_norms *norms, dlc_update *update) {
    const double *elsewhere = square_elsewhere(target);
    int of_tensors = target->solver->needs.norms == DLC_NORMS_GRADIENT;
    if (takes_whole_norm(target) || of_tensors)
        DLC_TRY(sum_arena(target, exchange, norms, arenas->gradients, 0));
    if (of_tensors)
        DLC_TRY(add_tensors(target, norms, norms->norm));
    if (takes_whole_norm(target))
        DLC_TRY(measure_model(target, norms));
    return clip(target, elsewhere ? elsewhere : norms->gradient, iteration, update);
}

/* ---- Tensors --------------------------------------------------------------------- */

static dlc_status run_direction(const dlc_update_target *target,
                                const dlc_update_arenas *arenas,
                                const dlc_param_ranges *ranges,
                                const dlc_update *update) {
    const dlc_norms none = {.sums = NULL};
    dlc_update made = *update;
    made.rule = target->solver->needs.direction;
    for (size_t i = 0; made.rule && i < ranges->first[ranges->buckets]; i++)
        DLC_TRY(dlc_update_run(target, arenas, &ranges->at[i], &none, &made));
    return DLC_OK;
}

static dlc_status measure_tensors(const dlc_update_target *target,
                                  const dlc_exchange *exchange,
                                  const dlc_update_arenas *arenas,
                                  const dlc_param_ranges *ranges,
                                  const dlc_norms *norms, const dlc_update *update) {
    const dlc_solver_needs *needs = &target->solver->needs;
    DLC_TRY(run_direction(target, arenas, ranges, update));
    DLC_TRY(sum_arena(target, exchange, norms, arenas->weights, 0));
    DLC_TRY(add_tensors(target, norms, norms->weight));
    if (needs->norms != DLC_NORMS_SLOT)
        return DLC_OK;
    DLC_TRY(sum_arena(target, exchange, norms, arenas->slots[needs->norm_slot], 1));
    return add_tensors(target, norms, norms->norm);
}

dlc_status dlc_norms_measure(const dlc_update_target *target,
                             const dlc_exchange *exchange,
                             const dlc_update_arenas *arenas,
                             const dlc_param_ranges *ranges, int64_t iteration,
                             const dlc_norms *norms, dlc_update *update) {
    DLC_TRY(measure_gradient(target, exchange, arenas, iteration, norms, update));
    return takes_tensor_norms(target)
               ? measure_tensors(target, exchange, arenas, ranges, norms, update)
               : DLC_OK;
}
