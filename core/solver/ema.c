/* Averages the weights, with operations that every device has. */
#include "solver/ema.h"

#include "base/status.h"

dlc_status dlc_ema_begin(const dlc_ema *ema) {
    return ema->count ? ema->ops->copy(ema->device, NULL, ema->average, ema->weights,
                                       ema->count * sizeof(float))
                      : DLC_OK;
}

dlc_status dlc_ema_update(const dlc_ema *ema, size_t begin, size_t end) {
    if (end > ema->count)
        end = ema->count;
    if (end <= begin)
        return DLC_OK;
    float *average = ema->average + begin;
    DLC_TRY(ema->ops->scale(ema->device, ema->queue, end - begin, (float)ema->decay,
                            average));
    return ema->ops->axpy(ema->device, ema->queue, end - begin, (float)(1 - ema->decay),
                          ema->weights + begin, average);
}

dlc_status dlc_ema_put(const dlc_ema *ema) {
    size_t bytes = ema->count * sizeof(float);
    if (!bytes)
        return DLC_OK;
    DLC_TRY(ema->ops->copy(ema->device, NULL, ema->gradients, ema->weights, bytes));
    return ema->ops->copy(ema->device, NULL, ema->weights, ema->average, bytes);
}

dlc_status dlc_ema_put_back(const dlc_ema *ema) {
    size_t bytes = ema->count * sizeof(float);
    if (!bytes)
        return DLC_OK;
    DLC_TRY(ema->ops->copy(ema->device, NULL, ema->weights, ema->gradients, bytes));
    return ema->ops->fill(ema->device, NULL, ema->gradients, 0, bytes);
}
