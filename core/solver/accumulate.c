/* Adds up the gradients of an iteration's micro-batches. */
#include "solver/accumulate.h"

#include "base/status.h"
#include "plugin/device_objects.h"

dlc_status dlc_accumulator_open(dlc_accumulator *accumulator) {
    if (accumulator->steps <= 1 || !accumulator->count)
        return DLC_OK;
    return dlc_device_alloc(accumulator->ops, accumulator->device,
                            accumulator->count * sizeof(float), 0, &accumulator->sum);
}

void dlc_accumulator_close(dlc_accumulator *accumulator) {
    dlc_device_free(accumulator->ops, accumulator->device, &accumulator->sum);
    *accumulator = (dlc_accumulator){0};
}

dlc_status dlc_accumulate(const dlc_accumulator *accumulator, int32_t micro_batch,
                          size_t begin, size_t end) {
    const dlc_device_ops *ops = accumulator->ops;
    if (end > accumulator->count)
        end = accumulator->count;
    if (accumulator->steps <= 1 || end <= begin)
        return DLC_OK;
    float *gradients = accumulator->gradients + begin;
    float *sum = (float *)accumulator->sum.base + begin;
    size_t n = end - begin;
    if (micro_batch == 0)
        return ops->copy(accumulator->device, accumulator->queue, sum, gradients,
                         n * sizeof *sum);
    if (micro_batch < accumulator->steps - 1)
        return ops->add(accumulator->device, accumulator->queue, n, gradients, sum);
    return ops->add(accumulator->device, accumulator->queue, n, sum, gradients);
}
