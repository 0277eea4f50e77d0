/* The updater's table: finds the parameters in a part of the arena, and updates each
 * with its multipliers. */
#include "solver/updater.h"

#include "base/memory.h"
#include "base/status.h"
#include "solver/norms.h"

struct dlc_solver_updater {
    dlc_updater table;
    dlc_update_target target;
    dlc_param_ranges ranges; /* of the whole arena */
    /* Of the last measure: */
    dlc_norms norms;
    const double *gradient_square; /* to clip by; NULL: nothing is clipped */
};

dlc_status dlc_update_make(const dlc_update_target *target, int64_t iteration,
                           dlc_update *update) {
    const dlc_solver *solver = target->solver;
    dlc_update made = {.size = sizeof made,
                       .rule = solver->needs.rule,
                       .lr_mult = 1,
                       .decay_mult = 1,
                       .grad_scale = 1.0f / (float)solver->accumulation_steps,
                       .values_at = target->values_at,
                       .loss_scale = target->loss_scale};
    DLC_TRY(dlc_solver_values(solver, iteration, &made.values));
    *update = made;
    return DLC_OK;
}

static dlc_status table_values(void *context, int64_t iteration,
                               dlc_rule_values *values) {
    const dlc_solver_updater *updater = context;
    return dlc_solver_values(updater->target.solver, iteration, values);
}

/* The index of the first range that ends after element `begin`. */
static size_t find_range(const dlc_param_ranges *ranges, size_t begin) {
    size_t low = 0, high = ranges->first[1];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges->at[middle].begin + ranges->at[middle].count <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Elements of an arena, at their own addresses. */
typedef struct part {
    size_t begin, end;
    const float *gradient;
    float *const *slots;
    float *weight;
    dlc_queue *queue; /* that does the work */
} arena_part;

static dlc_status update_range(const dlc_solver_updater *updater,
                               const dlc_update *update, const dlc_param_range *range,
                               const arena_part *part) {
    const dlc_update_target *target = &updater->target;
    size_t end = range->begin + range->count;
    size_t from = range->begin > part->begin ? range->begin : part->begin;
    size_t to = end < part->end ? end : part->end;
    size_t skip = from - part->begin;
    dlc_update made = dlc_update_of_range(update, range);
    float *slots[DLC_MAX_SLOTS] = {0};
    for (int32_t i = 0; i < target->solver->slots; i++)
        slots[i] = part->slots[i] + skip;
    dlc_norms_of_range(target, &updater->norms, range, &made);
    return target->device_ops->update(target->device, part->queue, to - from, &made,
                                      part->gradient + skip, slots,
                                      part->weight + skip);
}

/* As dlc_update_make, with what a consistency model gives. */
static dlc_update fill_update(const dlc_solver_updater *updater,
                              const dlc_rule_values *values, float grad_scale) {
    const dlc_solver *solver = updater->target.solver;
    return (dlc_update){.size = sizeof(dlc_update),
                        .rule = solver->needs.rule,
                        .grad_scale = grad_scale / (float)solver->accumulation_steps,
                        .clip_norm = (float)solver->clip_norm,
                        .values = *values,
                        .loss_scale = updater->target.loss_scale};
}

/* What whole gradients are needed for. */
static const char *reason(const dlc_solver *solver) {
    const char *found = dlc_solver_whole_reason(solver);
    return found ? found : "the norm of fp16 gradients, which may overflow";
}

static dlc_status table_update(void *context, dlc_queue *queue,
                               const dlc_rule_values *values, size_t begin,
                               size_t count, float grad_scale, const float *gradient,
                               float *const *slots, float *weight) {
    const dlc_solver_updater *updater = context;
    const dlc_solver *solver = updater->target.solver;
    const dlc_param_ranges *ranges = &updater->ranges;
    arena_part part = {begin, begin + count, gradient, slots, weight, queue};
    dlc_update update = fill_update(updater, values, grad_scale);
    if (updater->table.needs_norms && !updater->norms.sums)
        return dlc_fail(DLC_ERR_CONFIG,
                        "solver '%s' needs %s, and this consistency model takes no "
                        "norms; set [consistency] type = synchronous",
                        solver->name, reason(solver));
    update.gradient_square = updater->gradient_square;
    for (size_t i = find_range(ranges, begin);
         i < ranges->first[1] && ranges->at[i].begin < part.end; i++)
        DLC_TRY(update_range(updater, &update, &ranges->at[i], &part));
    return DLC_OK;
}

static dlc_status table_measure(void *context, dlc_queue *queue,
                                const dlc_rule_values *values, float grad_scale,
                                const float *gradients, float *const *slots,
                                float *weights) {
    dlc_solver_updater *updater = context;
    const dlc_solver *solver = updater->target.solver;
    dlc_update_target here = updater->target;
    dlc_update_arenas arenas = {.weights = weights, .gradients = gradients};
    dlc_update update = fill_update(updater, values, grad_scale);
    here.queue = queue;
    if (!updater->norms.sums)
        DLC_TRY(dlc_norms_open(&updater->target, &updater->norms));
    for (int32_t i = 0; i < solver->slots; i++)
        arenas.slots[i] = slots[i];
    DLC_TRY(dlc_norms_measure(&here, NULL, &arenas, &updater->ranges, 0,
                              &updater->norms, &update));
    updater->gradient_square = update.gradient_square;
    return DLC_OK;
}

dlc_status dlc_solver_updater_gradient_square(dlc_solver_updater *updater,
                                              const dlc_exchange *exchange,
                                              const float *gradients,
                                              const double **square) {
    const dlc_update_arenas arenas = {.gradients = gradients};
    if (!updater->norms.sums)
        DLC_TRY(dlc_norms_open(&updater->target, &updater->norms));
    DLC_TRY(
        dlc_norms_of_gradient(&updater->target, exchange, &arenas, &updater->norms));
    *square = updater->norms.gradient;
    return DLC_OK;
}

dlc_status dlc_solver_updater_open(const dlc_update_target *target,
                                   dlc_solver_updater **updater) {
    dlc_solver_updater *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->target = *target;
    made->table = (dlc_updater){.size = sizeof made->table,
                                .context = made,
                                .slots = target->solver->slots,
                                .needs_norms = dlc_norms_are_needed(target),
                                .values = table_values,
                                .update = table_update,
                                .measure = table_measure};
    dlc_param_ranges_args args = {.segment = target->segment,
                                  .segments = target->segments,
                                  .count = target->count,
                                  .whole = target->solver->needs.norms != 0};
    dlc_status status = dlc_param_ranges_make(&args, &made->ranges);
    if (status != DLC_OK) {
        dlc_solver_updater_close(made);
        return status;
    }
    *updater = made;
    return DLC_OK;
}

void dlc_solver_updater_close(dlc_solver_updater *updater) {
    if (!updater)
        return;
    dlc_norms_close(&updater->target, &updater->norms);
    dlc_param_ranges_free(&updater->ranges);
    dlc_free(updater);
}

const dlc_updater *dlc_solver_updater_table(const dlc_solver_updater *updater) {
    return &updater->table;
}

const dlc_update_target *dlc_updater_target(const dlc_updater *table) {
    const dlc_solver_updater *updater = table->context;
    return &updater->target;
}
