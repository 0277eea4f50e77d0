/* Shuffles each epoch from the identity, with random numbers of its own. */
#include "data/order.h"

#include "base/memory.h"
#include "base/random.h"

/* The random streams that epochs are shuffled from ("shuf"). */
#define STREAM_SHUFFLE UINT64_C(0x7368756600000000)

dlc_status dlc_order_open(int64_t samples, uint64_t seed, int shuffle,
                          dlc_order *order) {
    uint32_t *map = NULL;
    if (shuffle) {
        if (samples > UINT32_MAX)
            return dlc_fail(DLC_ERR_DATA,
                            "a source of %lld samples is too large to shuffle: set "
                            "shuffle = false, or use at most %lld samples",
                            (long long)samples, (long long)UINT32_MAX);
        map = dlc_alloc((size_t)samples, sizeof *map);
        if (!map)
            return DLC_ERR_NOMEM;
    }
    *order = (dlc_order){.samples = samples, .seed = seed, .map = map, .epoch = -1};
    return DLC_OK;
}

void dlc_order_close(dlc_order *order) {
    dlc_free(order->map);
    *order = (dlc_order){0};
}

/* Fisher-Yates (Knuth, TAOCP 2, algorithm 3.4.2 P), from the identity, so that an
 * epoch's order doesn't depend on those before it. */
static void shuffle_epoch(dlc_order *order, int64_t epoch) {
    dlc_random random = dlc_random_make(order->seed, STREAM_SHUFFLE + (uint64_t)epoch);
    uint32_t *map = order->map;
    for (int64_t i = 0; i < order->samples; i++)
        map[i] = (uint32_t)i;
    for (int64_t i = order->samples - 1; i > 0; i--) {
        int64_t j = (int64_t)dlc_random_below(&random, (uint64_t)i + 1);
        uint32_t other = map[j];
        map[j] = map[i];
        map[i] = other;
    }
    order->epoch = epoch;
}

int64_t dlc_order_at(dlc_order *order, int64_t position) {
    int64_t epoch = position / order->samples;
    int64_t index = position % order->samples;
    if (!order->map)
        return index;
    if (epoch != order->epoch)
        shuffle_epoch(order, epoch);
    return order->map[index];
}
