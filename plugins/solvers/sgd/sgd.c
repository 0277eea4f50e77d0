/* Stochastic gradient descent with momentum, synchronous over all ranks.
 *
 * The exchange of a bucket starts as soon as backward has filled it; its weights
 * are updated as soon as it is back, while later buckets are still under way. Only
 * clipping must see the whole gradient first.
 */
#include <math.h>

#include <dlcore/solver.h>

#include "../shared/micro.h"
#include "../shared/policy.h"
#include "../shared/stretches.h"

static const dlc_host *host;

enum { SLOT_MOMENTUM, SLOT_SUM, SLOTS };

struct dlc_solver {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    const dlc_exchange *exchange;
    float *weights, *gradients, *velocity;
    float *sum;     /* of the micro-batches before the last; NULL with one */
    size_t trained; /* elements before the tail */

    rate_policy policy;
    double momentum, decay, clip;
    const float *rate_at;       /* in device memory; NULL: the policy's number */
    dlc_loss_scale *loss_scale; /* NULL: gradients are as they are */
    int nesterov;
    int32_t micro_batches;

    stretches pieces; /* what this rank updates */
    /* Where the exchange sums and updates at once: a step for each piece, of this
     * iteration, and how it is done. NULL otherwise. */
    dlc_weight_step *steps;
    dlc_momentum *how;
};

static dlc_status sgd_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* It can do with a part of the gradients at a time, if the core knows such. */
static void take_parts(dlc_solver_needs *needs) {
    if (DLC_HAS(needs, shards))
        needs->shards = 1;
    if (DLC_HAS(needs, late))
        needs->late = 1;
    if (DLC_HAS(needs, queued))
        needs->queued = 1;
}

static dlc_status sgd_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    dlc_status rc = policy_check(host, settings);
    if (rc != DLC_OK)
        return rc;
    needs->micro_batches = (int32_t)host->get_int(settings, "accumulation_steps");
    needs->slots = needs->micro_batches > 1 ? SLOTS : 1;
    needs->slot_name[SLOT_MOMENTUM] = "momentum";
    needs->slot_saved = 1u << SLOT_MOMENTUM;
    /* The length of a gradient takes all of it. */
    if (host->get_float(settings, "clip_gradients") <= 0)
        take_parts(needs);
    if (needs->micro_batches > 1)
        needs->slot_name[SLOT_SUM] = "sum"; /* empty between iterations */
    return DLC_OK;
}

static dlc_status sgd_check_schedule(const dlc_settings *settings, int64_t iterations,
                                     int64_t epoch_iterations, char *warning,
                                     size_t bytes) {
    return policy_look(host, settings, iterations, epoch_iterations, warning, bytes);
}

/* Does this rank update a shard of each bucket only? */
static int is_sharded(const dlc_exchange *exchange) {
    return DLC_CAN(exchange, settle);
}

/* ---- Life ------------------------------------------------------------------------ */

static void sgd_destroy(dlc_solver *solver) {
    if (!solver)
        return;
    stretches_free(host, &solver->pieces);
    host->free(solver->steps);
    host->free(solver->how);
    host->free(solver);
}

/* What a device with queues reads when its turn comes. */
static void take_from_memory(dlc_solver *solver, const dlc_solver_args *args) {
    if (DLC_HAS(args, rate_at))
        solver->rate_at = args->rate_at;
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
    solver->trained = args->count - args->tail;
    solver->momentum = host->get_float(settings, "momentum");
    solver->nesterov = host->get_bool(settings, "nesterov");
    solver->decay = host->get_float(settings, "weight_decay");
    solver->clip = host->get_float(settings, "clip_gradients");
    take_from_memory(solver, args);
    if (solver->loss_scale && solver->clip > 0)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: clip_gradients needs gradients of their true length, "
                          "which half precision's are not; take [train] precision = bf16",
                          host->where(settings, "clip_gradients"));
    solver->micro_batches = (int32_t)host->get_int(settings, "accumulation_steps");
    return policy_make_for(host, args, &solver->policy);
}

/* The last bucket is everybody's. */
static int is_stepped(const dlc_solver *solver, int32_t bucket) {
    return solver->steps && bucket < solver->exchange->buckets - 1;
}

static dlc_status prepare_steps(dlc_solver *solver) {
    const dlc_exchange *exchange = solver->exchange;
    const stretches *pieces = &solver->pieces;
    size_t count = pieces->first[exchange->buckets];
    solver->steps = host->alloc((count + 1) * sizeof *solver->steps);
    solver->how = host->alloc((count + 1) * sizeof *solver->how);
    if (!solver->steps || !solver->how)
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < exchange->buckets; b++)
        for (size_t i = pieces->first[b]; i < pieces->first[b + 1]; i++)
            solver->steps[i] = (dlc_weight_step){
                .size = sizeof *solver->steps,
                .how = &solver->how[i],
                .begin = pieces->at[i].begin - exchange->bucket_begin[b],
                .count = pieces->at[i].count,
                .velocity = solver->velocity + pieces->at[i].begin};
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
        rc = stretches_cut(host, args, sharded ? exchange->own_begin : NULL,
                           sharded ? exchange->own_end : NULL, &made->pieces);
    if (rc == DLC_OK && DLC_CAN(exchange, step) && sharded)
        rc = prepare_steps(made);
    if (rc == DLC_OK)
        *solver = made;
    else
        sgd_destroy(made);
    return rc;
}

static double sgd_rate(dlc_solver *solver, int64_t iteration) {
    return policy_rate(&solver->policy, iteration);
}

/* ---- An iteration ------------------------------------------------------------ */

/* Gathers the micro-batches of a bucket, without the tail. */
static dlc_status gather(dlc_solver *solver, int32_t micro, int32_t bucket) {
    const micro_batches batches = {.ops = solver->ops,
                                   .device = solver->device,
                                   .queue = solver->queue,
                                   .count = solver->micro_batches,
                                   .gradients = solver->gradients,
                                   .sum = solver->sum};
    size_t end = solver->exchange->bucket_begin[bucket + 1];
    return micro_gather(&batches, micro, solver->exchange->bucket_begin[bucket],
                        end < solver->trained ? end : solver->trained);
}

static dlc_momentum step_of(dlc_solver *solver, int64_t iteration) {
    return (dlc_momentum){
        .size = sizeof(dlc_momentum),
        .nesterov = (uint32_t)solver->nesterov,
        .rate = solver->rate_at ? 1.0f : (float)sgd_rate(solver, iteration),
        .momentum = (float)solver->momentum,
        .decay = (float)solver->decay,
        .grad_scale = 1.0f / (float)solver->micro_batches,
        .rate_at = solver->rate_at,
        .loss_scale = solver->loss_scale,
    };
}

static dlc_momentum step_of_piece(const dlc_momentum *base, const stretch *piece) {
    dlc_momentum how = *base;
    how.rate *= piece->rate;
    how.decay *= piece->decay;
    return how;
}

/* Sums, updates and gives out a bucket's weights. */
static dlc_status start_steps(dlc_solver *solver, int64_t iteration, int32_t bucket) {
    const stretches *pieces = &solver->pieces;
    size_t first = pieces->first[bucket], end = pieces->first[bucket + 1];
    dlc_momentum base = step_of(solver, iteration);
    for (size_t i = first; i < end; i++)
        solver->how[i] = step_of_piece(&base, &pieces->at[i]);
    return solver->exchange->step(solver->exchange->context, bucket,
                                  solver->steps + first, (int32_t)(end - first));
}

static dlc_status sgd_ready(dlc_solver *solver, int64_t iteration, int32_t micro,
                            int32_t bucket) {
    if (solver->micro_batches > 1) {
        dlc_status rc = gather(solver, micro, bucket);
        if (rc != DLC_OK || micro < solver->micro_batches - 1)
            return rc;
    }
    if (is_stepped(solver, bucket))
        return start_steps(solver, iteration, bucket);
    return solver->exchange->start(solver->exchange->context, bucket);
}

static dlc_status update_bucket(dlc_solver *solver, int32_t bucket,
                                const dlc_momentum *base) {
    const stretches *pieces = &solver->pieces;
    for (size_t i = pieces->first[bucket]; i < pieces->first[bucket + 1]; i++) {
        const stretch *piece = &pieces->at[i];
        dlc_momentum how = step_of_piece(base, piece);
        dlc_status rc = solver->ops->momentum(
            solver->device, solver->queue, piece->count, &how,
            solver->gradients + piece->begin, solver->velocity + piece->begin,
            solver->weights + piece->begin);
        if (rc != DLC_OK)
            return rc;
    }
    return DLC_OK;
}

/* Shrinks the gradient to the length allowed (Pascanu et al., "On the difficulty of
 * training recurrent neural networks", 2013, algorithm 1), by way of its scale. */
static dlc_status clip(dlc_solver *solver, int64_t iteration, dlc_momentum *how) {
    double square;
    dlc_status rc = solver->ops->norm2(solver->device, solver->queue, solver->trained,
                                       solver->gradients, &square);
    if (rc != DLC_OK)
        return rc;
    if (!isfinite(square))
        return host->fail(DLC_ERR_DIVERGED,
                          "the gradient is not finite at iteration %lld; lower the "
                          "learning rate (%g)",
                          (long long)iteration, sgd_rate(solver, iteration));
    double norm = sqrt(square) * how->grad_scale;
    if (norm > solver->clip)
        how->grad_scale = (float)(how->grad_scale * solver->clip / norm);
    return DLC_OK;
}

static dlc_status sgd_update(dlc_solver *solver, int64_t iteration, int32_t bucket) {
    const dlc_exchange *exchange = solver->exchange;
    dlc_momentum how = step_of(solver, iteration);
    dlc_status rc = exchange->wait(exchange->context, bucket);
    return rc == DLC_OK ? update_bucket(solver, bucket, &how) : rc;
}

/* Looks through all gradients for what half precision could not hold. */
static dlc_status check_overflow(dlc_solver *solver) {
    enum { PATIENCE = 2000 };
    return solver->ops->adapt_scale(solver->device, solver->queue, solver->trained,
                                    solver->gradients, PATIENCE, solver->loss_scale);
}

/* What must see the whole gradient before any of it is used. */
static dlc_status look_through(dlc_solver *solver, int64_t iteration,
                               dlc_momentum *how) {
    dlc_status rc = solver->loss_scale ? check_overflow(solver) : DLC_OK;
    if (rc == DLC_OK && solver->clip > 0)
        rc = clip(solver, iteration, how);
    return rc;
}

static dlc_status sgd_finish(dlc_solver *solver, int64_t iteration) {
    const dlc_exchange *exchange = solver->exchange;
    dlc_status rc = DLC_OK;
    dlc_momentum how = step_of(solver, iteration);
    int whole = solver->clip > 0 || solver->loss_scale;
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {
        if (is_stepped(solver, b))
            continue;
        rc = exchange->wait(exchange->context, b);
        if (rc == DLC_OK && !whole)
            rc = update_bucket(solver, b, &how);
        if (rc == DLC_OK && is_sharded(exchange))
            rc = exchange->spread(exchange->context, b);
    }
    if (rc == DLC_OK && is_sharded(exchange))
        rc = exchange->settle(exchange->context);
    if (rc == DLC_OK && whole)
        rc = look_through(solver, iteration, &how);
    for (int32_t b = 0; whole && rc == DLC_OK && b < exchange->buckets; b++)
        rc = update_bucket(solver, b, &how);
    return rc;
}

/* ---- The plugin -------------------------------------------------------------- */

static const dlc_option options[] = {
    POLICY_OPTIONS,
    MOMENTUM_OPTIONS,
    DLC_FLOAT("clip_gradients", "0", 0, 1e30,
              "longest gradient (L2 norm over all parameters); 0: any length"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = sgd_needs,
    .create = sgd_create,
    .destroy = sgd_destroy,
    .rate = sgd_rate,
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

const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "sgd",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = sgd_load,
};
