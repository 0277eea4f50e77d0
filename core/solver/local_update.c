/* A consistency model whose exchange may have nothing to do. */
#include "solver/local_update.h"

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
    if (!made.exchange)
        made.exchange = &update->exchange;
    update->reduction = made.exchange;
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
    return micro_batch == accumulator->steps - 1 && !update->is_late
               ? update->ops->ready(update->model, iteration, 0)
               : DLC_OK;
}

dlc_status dlc_local_update_finish(const dlc_local_update *update, int64_t iteration) {
    if (update->model && update->is_late)
        DLC_TRY(update->ops->ready(update->model, iteration, 0));
    return update->model ? update->ops->finish(update->model, iteration) : DLC_OK;
}

dlc_status dlc_local_update_gradient_square(const dlc_local_update *update,
                                            const double **square) {
    *square = NULL;
    if (!update->model)
        return DLC_OK;
    if (!update->is_late)
        DLC_TRY(update->reduction->wait(update->reduction->context, 0));
    return dlc_solver_updater_gradient_square(update->updater,
                                              update->accumulator.gradients, square);
}
