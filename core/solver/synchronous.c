/* The iterations of synchronous training. */
#include "solver/synchronous.h"

#include "base/memory.h"
#include "base/status.h"
#include "solver/norms.h"
#include "solver/updater.h"

struct dlc_consistency {
    const dlc_update_target *target;
    const dlc_exchange *exchange;
    dlc_update_arenas arenas;
    dlc_param_ranges ranges; /* what this rank updates */
    dlc_norms norms;
    int needs_norms; /* no weight is updated before all gradients are reduced */

    dlc_update update; /* of iteration `made_for` */
    int64_t made_for;

    /* With a fused update (reduce, update, all-gather in one call): one entry for each
     * range, and its update of this iteration. NULL otherwise. */
    dlc_update_range *fused;
    dlc_update *updates;
};

/* Does this rank update only its shard of each bucket (ZeRO-1)? */
static int is_sharded(const dlc_exchange *exchange) {
    return DLC_CAN(exchange, flush);
}

/* ---- Create and destroy ------------------------------------------------------ */

static dlc_status sync_needs(const dlc_settings *settings,
                             dlc_consistency_needs *needs) {
    (void)settings;
    needs->deferred_update = 1;
    return DLC_OK;
}

static void sync_destroy(dlc_consistency *model) {
    if (!model)
        return;
    dlc_norms_close(model->target, &model->norms);
    dlc_param_ranges_free(&model->ranges);
    dlc_free(model->fused);
    dlc_free(model->updates);
    dlc_free(model);
}

static dlc_status make_ranges(dlc_consistency *model) {
    const dlc_update_target *target = model->target;
    const dlc_exchange *exchange = model->exchange;
    int norms = target->solver->needs.norms != DLC_NORMS_NONE;
    int sharded = is_sharded(exchange);
    dlc_param_ranges_args args = {
        .segment = target->segment,
        .segments = target->segments,
        .count = target->count,
        .bucket_begin = norms && !sharded ? NULL : exchange->bucket_begin,
        .buckets = exchange->buckets,
        .shard_begin = sharded ? exchange->shard_begin : NULL,
        .shard_end = sharded ? exchange->shard_end : NULL,
        .slot_begin = sharded ? exchange->slot_begin : NULL,
        .whole = norms};
    return dlc_param_ranges_make(&args, &model->ranges);
}

static dlc_status prepare_fused_updates(dlc_consistency *model) {
    const dlc_exchange *exchange = model->exchange;
    const dlc_param_ranges *ranges = &model->ranges;
    size_t count = ranges->first[ranges->buckets];
    if (!DLC_CAN(exchange, fused_update) || !is_sharded(exchange) || model->needs_norms)
        return DLC_OK;
    model->fused = dlc_alloc(count, sizeof *model->fused);
    model->updates = dlc_alloc(count, sizeof *model->updates);
    if (!model->fused || !model->updates)
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < exchange->buckets; b++)
        for (size_t i = ranges->first[b]; i < ranges->first[b + 1]; i++) {
            dlc_update_range *range = &model->fused[i];
            *range = (dlc_update_range){.size = sizeof *range,
                                        .update = &model->updates[i],
                                        .begin = ranges->at[i].begin -
                                                 exchange->bucket_begin[b],
                                        .count = ranges->at[i].count};
            for (int32_t s = 0; s < model->target->solver->slots; s++)
                range->slots[s] = model->arenas.slots[s] + ranges->at[i].slot_begin;
        }
    return DLC_OK;
}

static dlc_status sync_create(const dlc_consistency_args *args,
                              dlc_consistency **model) {
    dlc_consistency *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->target = dlc_updater_target(args->updater);
    made->exchange = args->exchange;
    made->arenas = (dlc_update_arenas){.weights = args->weights,
                                       .gradients = args->gradients};
    for (int32_t i = 0; i < made->target->solver->slots; i++)
        made->arenas.slots[i] = args->slots[i];
    made->needs_norms = dlc_norms_are_needed(made->target);
    made->made_for = -1;
    dlc_status status = dlc_norms_open(made->target, &made->norms);
    if (status == DLC_OK)
        status = make_ranges(made);
    if (status == DLC_OK)
        status = prepare_fused_updates(made);
    if (status != DLC_OK) {
        sync_destroy(made);
        return status;
    }
    *model = made;
    return DLC_OK;
}

/* ---- An iteration ------------------------------------------------------------ */

/* The hyperparameters are computed once an iteration. */
static dlc_status make_update(dlc_consistency *model, int64_t iteration) {
    if (model->made_for == iteration)
        return DLC_OK;
    DLC_TRY(dlc_update_make(model->target, iteration, &model->update));
    model->made_for = iteration;
    return DLC_OK;
}

/* The last bucket holds the control words, which every rank reads, so it is never
 * fused. */
static int is_fused(const dlc_consistency *model, int32_t bucket) {
    return model->fused && bucket < model->exchange->buckets - 1;
}

/* Reduces a bucket, updates it and gathers its weights in one call. */
static dlc_status start_fused_update(dlc_consistency *model, int64_t iteration,
                                     int32_t bucket) {
    const dlc_param_ranges *ranges = &model->ranges;
    size_t first = ranges->first[bucket], end = ranges->first[bucket + 1];
    DLC_TRY(make_update(model, iteration));
    for (size_t i = first; i < end; i++)
        model->updates[i] = dlc_update_of_range(&model->update, &ranges->at[i]);
    return model->exchange->fused_update(model->exchange->context, bucket,
                                         model->fused + first, (int32_t)(end - first));
}

static dlc_status sync_ready(dlc_consistency *model, int64_t iteration,
                             int32_t bucket) {
    if (is_fused(model, bucket))
        return start_fused_update(model, iteration, bucket);
    return model->exchange->start(model->exchange->context, bucket);
}

static dlc_status run_ranges(const dlc_consistency *model, size_t first, size_t end,
                             const dlc_update *update) {
    for (size_t i = first; i < end; i++)
        DLC_TRY(dlc_update_run(model->target, &model->arenas, &model->ranges.at[i],
                               &model->norms, update));
    return DLC_OK;
}

static dlc_status sync_update(dlc_consistency *model, int64_t iteration,
                              int32_t bucket) {
    const size_t *first = model->ranges.first;
    DLC_TRY(make_update(model, iteration));
    DLC_TRY(model->exchange->wait(model->exchange->context, bucket));
    return run_ranges(model, first[bucket], first[bucket + 1], &model->update);
}

/* Updates with what can be known only when all gradients are reduced. */
static dlc_status update_with_norms(dlc_consistency *model, int64_t iteration) {
    dlc_update update = model->update;
    for (int32_t b = 0; b < model->exchange->buckets; b++)
        DLC_TRY(model->exchange->wait(model->exchange->context, b));
    DLC_TRY(dlc_norms_measure(model->target, model->exchange, &model->arenas,
                              &model->ranges, iteration, &model->norms, &update));
    return run_ranges(model, 0, model->ranges.first[model->ranges.buckets], &update);
}

static dlc_status sync_finish(dlc_consistency *model, int64_t iteration) {
    const dlc_exchange *exchange = model->exchange;
    DLC_TRY(make_update(model, iteration));
    if (model->needs_norms)
        DLC_TRY(update_with_norms(model, iteration));
    for (int32_t b = 0; b < exchange->buckets; b++) {
        if (is_fused(model, b))
            continue;
        if (!model->needs_norms)
            DLC_TRY(sync_update(model, iteration, b));
        if (is_sharded(exchange))
            DLC_TRY(exchange->all_gather(exchange->context, b));
    }
    return is_sharded(exchange) ? exchange->flush(exchange->context) : DLC_OK;
}

static dlc_status sync_synchronize(dlc_consistency *model, int64_t iteration) {
    (void)model;
    (void)iteration;
    return DLC_OK; /* the ranks never differ */
}

const dlc_consistency_ops dlc_synchronous_ops = {.size = sizeof dlc_synchronous_ops,
                                                 .needs = sync_needs,
                                                 .create = sync_create,
                                                 .destroy = sync_destroy,
                                                 .ready = sync_ready,
                                                 .finish = sync_finish,
                                                 .update = sync_update,
                                                 .synchronize = sync_synchronize};

const dlc_feature dlc_synchronous_feature = {
    .size = sizeof dlc_synchronous_feature,
    .kind = DLC_KIND_CONSISTENCY,
    .name = "synchronous",
    .help = "all ranks have the same weights after each iteration",
    .ops = &dlc_synchronous_ops};
