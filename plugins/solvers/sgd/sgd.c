/* Solver sgd: stochastic gradient descent with momentum, synchronous over all ranks.
 *
 * The all-reduce of a bucket starts as soon as backward has filled it, and the weights
 * of the bucket are updated as soon as it is complete, while later buckets are still in
 * flight. Gradient clipping and loss scaling must see the whole gradient first. */
#include <math.h>

#include <dlcore/solver.h>

#include "../shared/accumulate.h"
#include "../shared/param_ranges.h"
#include "../shared/policy.h"

static const dlc_host *host;

enum { SLOT_MOMENTUM, SLOT_SUM, SLOTS };

struct dlc_solver {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    const dlc_exchange *exchange;
    float *weights, *gradients, *velocity;
    float *sum;     /* sum of all micro-batches but the last; NULL: no accumulation */
    size_t trained; /* elements before the control words */

    lr_policy policy;
    double momentum, weight_decay, clip;
    const float *learning_rate_at; /* in device memory; NULL: use the policy's value */
    dlc_loss_scale *loss_scale;    /* NULL: gradients are not scaled */
    int nesterov;
    int32_t accumulation_steps;

    param_ranges ranges; /* what this rank updates */
    /* With a fused update (reduce, update, all-gather in one call): one entry for each
     * range, and its hyperparameters of this iteration. NULL otherwise. */
    dlc_update_range *updates;
    dlc_momentum *rules;
};

static dlc_status sgd_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* Updates that need only a part of the gradient may be sharded, deferred or captured.
 * Older cores lack some of these fields. */
static void declare_partial_updates(dlc_solver_needs *needs) {
    if (DLC_HAS(needs, sharding))
        needs->sharding = 1;
    if (DLC_HAS(needs, deferred_update))
        needs->deferred_update = 1;
    if (DLC_HAS(needs, capturable))
        needs->capturable = 1;
}

static dlc_status sgd_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    dlc_status rc = policy_check(host, settings);
    if (rc != DLC_OK)
        return rc;
    needs->accumulation_steps = (int32_t)host->get_int(settings, "accumulation_steps");
    needs->slots = needs->accumulation_steps > 1 ? SLOTS : 1;
    needs->slot_name[SLOT_MOMENTUM] = "momentum";
    needs->slot_saved = 1u << SLOT_MOMENTUM;
    /* Clipping needs the norm of the whole gradient. */
    if (host->get_float(settings, "clip_gradients") <= 0)
        declare_partial_updates(needs);
    if (needs->accumulation_steps > 1)
        needs->slot_name[SLOT_SUM] = "sum"; /* not saved: empty between iterations */
    return DLC_OK;
}

static dlc_status sgd_check_schedule(const dlc_settings *settings, int64_t iterations,
                                     int64_t epoch_iterations, char *warning,
                                     size_t bytes) {
    return policy_check_schedule(host, settings, iterations, epoch_iterations, warning,
                                 bytes);
}

/* Does this rank update only its shard of each bucket (ZeRO-1)? */
static int is_sharded(const dlc_exchange *exchange) {
    return DLC_CAN(exchange, flush);
}

/* ---- Create and destroy ------------------------------------------------------ */

static void sgd_destroy(dlc_solver *solver) {
    if (!solver)
        return;
    param_ranges_free(host, &solver->ranges);
    host->free(solver->updates);
    host->free(solver->rules);
    host->free(solver);
}

/* Values in device memory, read by the kernels when the queue gets to them. */
static void take_device_values(dlc_solver *solver, const dlc_solver_args *args) {
    if (DLC_HAS(args, learning_rate_at))
        solver->learning_rate_at = args->learning_rate_at;
    if (DLC_HAS(args, loss_scale))
        solver->loss_scale = args->loss_scale;
}

static dlc_status fill_in(dlc_solver *solver, const dlc_solver_args *args) {
    const dlc_settings *settings = args->settings;
    solver->ops = args->device_ops;
    solver->device = args->device;
    solver->queue = args->queue;
    solver->exchange = args->exchange;
    solver->weights = args->weights;
    solver->gradients = args->gradients;
    solver->velocity = args->slots[SLOT_MOMENTUM];
    solver->sum = args->slots[SLOT_SUM];
    solver->trained = args->count - args->control_words;
    solver->momentum = host->get_float(settings, "momentum");
    solver->nesterov = host->get_bool(settings, "nesterov");
    solver->weight_decay = host->get_float(settings, "weight_decay");
    solver->clip = host->get_float(settings, "clip_gradients");
    take_device_values(solver, args);
    if (solver->loss_scale && solver->clip > 0)
        return host->fail(
            DLC_ERR_CONFIG,
            "%s: clip_gradients doesn't work with fp16, whose gradients are "
            "scaled; set [train] precision = bf16",
            host->where(settings, "clip_gradients"));
    solver->accumulation_steps = (int32_t)host->get_int(settings, "accumulation_steps");
    return policy_from_args(host, args, &solver->policy);
}

/* The last bucket holds the control words, which every rank reads, so it is never
 * fused. */
static int is_fused(const dlc_solver *solver, int32_t bucket) {
    return solver->updates && bucket < solver->exchange->buckets - 1;
}

static dlc_status prepare_fused_updates(dlc_solver *solver) {
    const dlc_exchange *exchange = solver->exchange;
    const param_ranges *ranges = &solver->ranges;
    size_t count = ranges->first[exchange->buckets];
    solver->updates = host->alloc((count + 1) * sizeof *solver->updates);
    solver->rules = host->alloc((count + 1) * sizeof *solver->rules);
    if (!solver->updates || !solver->rules)
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < exchange->buckets; b++)
        for (size_t i = ranges->first[b]; i < ranges->first[b + 1]; i++)
            solver->updates[i] = (dlc_update_range){
                .size = sizeof *solver->updates,
                .momentum = &solver->rules[i],
                .begin = ranges->at[i].begin - exchange->bucket_begin[b],
                .count = ranges->at[i].count,
                .velocity = solver->velocity + ranges->at[i].begin};
    return DLC_OK;
}

static dlc_status sgd_create(const dlc_solver_args *args, dlc_solver **solver) {
    const dlc_exchange *exchange = args->exchange;
    int sharded = is_sharded(exchange);
    dlc_solver *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status rc = fill_in(made, args);
    if (rc == DLC_OK)
        rc = param_ranges_make(host, args, sharded ? exchange->shard_begin : NULL,
                               sharded ? exchange->shard_end : NULL, &made->ranges);
    if (rc == DLC_OK && DLC_CAN(exchange, fused_update) && sharded)
        rc = prepare_fused_updates(made);
    if (rc == DLC_OK)
        *solver = made;
    else
        sgd_destroy(made);
    return rc;
}

static double sgd_learning_rate(dlc_solver *solver, int64_t iteration) {
    return policy_learning_rate(&solver->policy, iteration);
}

/* ---- An iteration ------------------------------------------------------------ */

/* Accumulates one micro-batch of a bucket, without the control words. */
static dlc_status accumulate_bucket(dlc_solver *solver, int32_t micro_batch,
                                    int32_t bucket) {
    const accumulator all = {.ops = solver->ops,
                             .device = solver->device,
                             .queue = solver->queue,
                             .steps = solver->accumulation_steps,
                             .gradients = solver->gradients,
                             .sum = solver->sum};
    size_t end = solver->exchange->bucket_begin[bucket + 1];
    return accumulate(&all, micro_batch, solver->exchange->bucket_begin[bucket],
                      end < solver->trained ? end : solver->trained);
}

static dlc_momentum base_rule(dlc_solver *solver, int64_t iteration) {
    return (dlc_momentum){
        .size = sizeof(dlc_momentum),
        .nesterov = (uint32_t)solver->nesterov,
        .learning_rate = solver->learning_rate_at
                             ? 1.0f
                             : (float)sgd_learning_rate(solver, iteration),
        .momentum = (float)solver->momentum,
        .weight_decay = (float)solver->weight_decay,
        .grad_scale = 1.0f / (float)solver->accumulation_steps,
        .learning_rate_at = solver->learning_rate_at,
        .loss_scale = solver->loss_scale,
    };
}

static dlc_momentum rule_of_range(const dlc_momentum *base, const param_range *range) {
    dlc_momentum rule = *base;
    rule.learning_rate *= range->lr_mult;
    rule.weight_decay *= range->decay_mult;
    return rule;
}

/* Reduces a bucket, updates it and gathers its weights in one call. */
static dlc_status start_fused_update(dlc_solver *solver, int64_t iteration,
                                     int32_t bucket) {
    const param_ranges *ranges = &solver->ranges;
    size_t first = ranges->first[bucket], end = ranges->first[bucket + 1];
    dlc_momentum base = base_rule(solver, iteration);
    for (size_t i = first; i < end; i++)
        solver->rules[i] = rule_of_range(&base, &ranges->at[i]);
    return solver->exchange->fused_update(solver->exchange->context, bucket,
                                          solver->updates + first,
                                          (int32_t)(end - first));
}

static dlc_status sgd_ready(dlc_solver *solver, int64_t iteration, int32_t micro_batch,
                            int32_t bucket) {
    if (solver->accumulation_steps > 1) {
        dlc_status rc = accumulate_bucket(solver, micro_batch, bucket);
        if (rc != DLC_OK || micro_batch < solver->accumulation_steps - 1)
            return rc;
    }
    if (is_fused(solver, bucket))
        return start_fused_update(solver, iteration, bucket);
    return solver->exchange->start(solver->exchange->context, bucket);
}

static dlc_status update_bucket(dlc_solver *solver, int32_t bucket,
                                const dlc_momentum *base) {
    const param_ranges *ranges = &solver->ranges;
    for (size_t i = ranges->first[bucket]; i < ranges->first[bucket + 1]; i++) {
        const param_range *range = &ranges->at[i];
        dlc_momentum rule = rule_of_range(base, range);
        dlc_status rc = solver->ops->momentum(
            solver->device, solver->queue, range->count, &rule,
            solver->gradients + range->begin, solver->velocity + range->begin,
            solver->weights + range->begin);
        if (rc != DLC_OK)
            return rc;
    }
    return DLC_OK;
}

/* Scales the gradient down to the norm allowed (Pascanu et al., "On the difficulty of
 * training recurrent neural networks", 2013, algorithm 1) through grad_scale. */
static dlc_status clip(dlc_solver *solver, int64_t iteration, dlc_momentum *rule) {
    double square;
    dlc_status rc = solver->ops->norm2(solver->device, solver->queue, solver->trained,
                                       solver->gradients, &square);
    if (rc != DLC_OK)
        return rc;
    if (!isfinite(square))
        return host->fail(DLC_ERR_DIVERGED,
                          "the gradient is not finite at iteration %lld; lower the "
                          "learning rate (%g)",
                          (long long)iteration, sgd_learning_rate(solver, iteration));
    double norm = sqrt(square) * rule->grad_scale;
    if (norm > solver->clip)
        rule->grad_scale = (float)(rule->grad_scale * solver->clip / norm);
    return DLC_OK;
}

static dlc_status sgd_update(dlc_solver *solver, int64_t iteration, int32_t bucket) {
    const dlc_exchange *exchange = solver->exchange;
    dlc_momentum rule = base_rule(solver, iteration);
    dlc_status rc = exchange->wait(exchange->context, bucket);
    return rc == DLC_OK ? update_bucket(solver, bucket, &rule) : rc;
}

/* Looks for overflow in all gradients and adapts the loss scale. */
static dlc_status check_overflow(dlc_solver *solver) {
    enum { PATIENCE = 2000 };
    return solver->ops->update_loss_scale(solver->device, solver->queue,
                                          solver->trained, solver->gradients, PATIENCE,
                                          solver->loss_scale);
}

/* Checks that need the whole gradient before any of it is applied. */
static dlc_status check_gradients(dlc_solver *solver, int64_t iteration,
                                  dlc_momentum *rule) {
    dlc_status rc = solver->loss_scale ? check_overflow(solver) : DLC_OK;
    if (rc == DLC_OK && solver->clip > 0)
        rc = clip(solver, iteration, rule);
    return rc;
}

static dlc_status sgd_finish(dlc_solver *solver, int64_t iteration) {
    const dlc_exchange *exchange = solver->exchange;
    dlc_status rc = DLC_OK;
    dlc_momentum rule = base_rule(solver, iteration);
    int needs_whole_gradient = solver->clip > 0 || solver->loss_scale;
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {
        if (is_fused(solver, b))
            continue;
        rc = exchange->wait(exchange->context, b);
        if (rc == DLC_OK && !needs_whole_gradient)
            rc = update_bucket(solver, b, &rule);
        if (rc == DLC_OK && is_sharded(exchange))
            rc = exchange->all_gather(exchange->context, b);
    }
    if (rc == DLC_OK && is_sharded(exchange))
        rc = exchange->flush(exchange->context);
    if (rc == DLC_OK && needs_whole_gradient)
        rc = check_gradients(solver, iteration, &rule);
    for (int32_t b = 0; needs_whole_gradient && rc == DLC_OK && b < exchange->buckets;
         b++)
        rc = update_bucket(solver, b, &rule);
    return rc;
}

/* ---- The plugin -------------------------------------------------------------- */

static const dlc_option options[] = {
    POLICY_OPTIONS,
    MOMENTUM_OPTIONS,
    DLC_FLOAT("clip_gradients", "0", 0, 1e30,
              "largest L2 norm of the gradient over all parameters; 0: no clipping"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = sgd_needs,
    .create = sgd_create,
    .destroy = sgd_destroy,
    .learning_rate = sgd_learning_rate,
    .check_schedule = sgd_check_schedule,
    .ready = sgd_ready,
    .finish = sgd_finish,
    .update = sgd_update,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "sgd",
     .help = "stochastic gradient descent with momentum, synchronous",
     .caps = DLC_SOLVER_SYNCHRONOUS,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "sgd",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = sgd_load,
};
