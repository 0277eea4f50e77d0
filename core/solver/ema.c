/* Averages the weights, with operations that every device has. */
#include "solver/ema.h"

#include <stdint.h>

#include "base/status.h"

static dlc_status begin_part(const dlc_ema *ema, size_t n, float *weights,
                             float *average) {
    return ema->ops->copy(ema->device, NULL, average, weights, n * sizeof(float));
}

static dlc_status update_part(const dlc_ema *ema, size_t n, float *weights,
                              float *average) {
    DLC_TRY(ema->ops->scale(ema->device, ema->queue, n, (float)ema->decay, average));
    return ema->ops->axpy(ema->device, ema->queue, n, (float)(1 - ema->decay), weights,
                          average);
}

static dlc_status put_part(const dlc_ema *ema, size_t n, float *weights,
                           float *average) {
    return ema->ops->copy(ema->device, NULL, weights, average, n * sizeof(float));
}

typedef dlc_status part_call(const dlc_ema *ema, size_t n, float *weights,
                             float *average);

/* Calls for the elements [begin, end) that there are; `at` is where the average has
 * element `begin`. */
static dlc_status on_part(const dlc_ema *ema, size_t begin, size_t end, size_t at,
                          part_call *call) {
    if (end > ema->count)
        end = ema->count;
    return end > begin ? call(ema, end - begin, ema->weights + begin, ema->average + at)
                       : DLC_OK;
}

/* Calls for each of this rank's shards, or for [begin, end). */
static dlc_status on_parts(const dlc_ema *ema, size_t begin, size_t end,
                           part_call *call) {
    const dlc_exchange *shards = ema->shards;
    if (!shards || !shards->shard_begin)
        return on_part(ema, begin, end, begin, call);
    for (int32_t b = 0; b < shards->buckets; b++)
        DLC_TRY(on_part(ema, shards->shard_begin[b], shards->shard_end[b],
                        shards->slot_begin[b], call));
    return DLC_OK;
}

dlc_status dlc_ema_begin(const dlc_ema *ema) {
    return on_parts(ema, 0, SIZE_MAX, begin_part);
}

dlc_status dlc_ema_update(const dlc_ema *ema, size_t begin, size_t end) {
    return on_parts(ema, begin, end, update_part);
}

dlc_status dlc_ema_put(const dlc_ema *ema) {
    size_t bytes = ema->count * sizeof(float);
    if (!bytes)
        return DLC_OK;
    DLC_TRY(ema->ops->copy(ema->device, NULL, ema->gradients, ema->weights, bytes));
    return on_parts(ema, 0, SIZE_MAX, put_part);
}

dlc_status dlc_ema_put_back(const dlc_ema *ema) {
    size_t bytes = ema->count * sizeof(float);
    if (!bytes)
        return DLC_OK;
    DLC_TRY(ema->ops->copy(ema->device, NULL, ema->weights, ema->gradients, bytes));
    return ema->ops->fill(ema->device, NULL, ema->gradients, 0, bytes);
}
