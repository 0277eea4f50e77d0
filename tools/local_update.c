/* A consistency model whose exchange has nothing to do. */
#include "local_update.h"

#include "base/status.h"

static dlc_status no_reduction(void *context, int32_t bucket) {
    (void)context;
    (void)bucket;
    return DLC_OK;
}

static dlc_status open_model(const dlc_update_target *target,
                             const dlc_consistency_args *args,
                             dlc_local_update *update) {
    dlc_consistency_args made = *args;
    update->border[1] = target->count;
    update->exchange = (dlc_exchange){.size = sizeof update->exchange,
                                      .ranks = 1,
                                      .buckets = 1,
                                      .bucket_begin = update->border,
                                      .start = no_reduction,
                                      .wait = no_reduction};
    made.updater = dlc_solver_updater_table(update->updater);
    made.exchange = &update->exchange;
    return update->ops->create(&made, &update->model);
}

dlc_status dlc_local_update_open(const dlc_update_target *target,
                                 const dlc_consistency_ops *ops,
                                 const dlc_consistency_args *args, int32_t steps,
                                 dlc_local_update *update) {
    update->ops = ops;
    update->accumulator = (dlc_accumulator){.ops = target->device_ops,
                                            .device = target->device,
                                            .queue = target->queue,
                                            .steps = steps,
                                            .gradients = args->gradients,
                                            .count = target->count};
    DLC_TRY(dlc_accumulator_open(&update->accumulator));
    DLC_TRY(dlc_solver_updater_open(target, &update->updater));
    return open_model(target, args, update);
}

void dlc_local_update_close(dlc_local_update *update) {
    if (update->model)
        update->ops->destroy(update->model);
    dlc_solver_updater_close(update->updater);
    dlc_accumulator_close(&update->accumulator);
    *update = (dlc_local_update){.model = NULL};
}

dlc_status dlc_local_update_ready(const dlc_local_update *update, int64_t iteration,
                                  int32_t micro_batch) {
    const dlc_accumulator *accumulator = &update->accumulator;
    if (!update->model)
        return DLC_OK;
    DLC_TRY(dlc_accumulate(accumulator, micro_batch, 0, accumulator->count));
    return micro_batch == accumulator->steps - 1
               ? update->ops->ready(update->model, iteration, 0)
               : DLC_OK;
}

dlc_status dlc_local_update_finish(const dlc_local_update *update, int64_t iteration) {
    return update->model ? update->ops->finish(update->model, iteration) : DLC_OK;
}
