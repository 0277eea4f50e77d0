/* Gradient accumulation: adds up the gradients of an iteration's micro-batches. */
#include "accumulate.h"

dlc_status accumulate(const accumulator *of, int32_t micro_batch, size_t begin,
                      size_t end) {
    const dlc_device_ops *ops = of->ops;
    if (end <= begin)
        return DLC_OK;
    float *gradients = of->gradients + begin, *sum = of->sum + begin;
    size_t n = end - begin;
    if (micro_batch == 0)
        return ops->copy(of->device, of->queue, sum, gradients, n * sizeof *sum);
    if (micro_batch < of->steps - 1)
        return ops->add(of->device, of->queue, n, gradients, sum);
    return ops->add(of->device, of->queue, n, sum, gradients);
}
