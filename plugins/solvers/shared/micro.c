/* See micro.h. */
#include "micro.h"

dlc_status micro_gather(const micro_batches *batches, int32_t micro, size_t begin,
                        size_t end) {
    const dlc_device_ops *ops = batches->ops;
    if (end <= begin)
        return DLC_OK;
    float *gradients = batches->gradients + begin, *sum = batches->sum + begin;
    size_t n = end - begin;
    if (micro == 0)
        return ops->copy(batches->device, batches->queue, sum, gradients,
                         n * sizeof *sum);
    if (micro < batches->count - 1)
        return ops->add(batches->device, batches->queue, n, gradients, sum);
    return ops->add(batches->device, batches->queue, n, sum, gradients);
}
