/* The endless sequence of samples that training goes through: epoch after epoch, each
 * with a new order of all samples that depends on the seed and the epoch alone. Used by
 * the feed. */
#ifndef DLC_DATA_ORDER_H
#define DLC_DATA_ORDER_H

#include <stdint.h>

#include "base/status.h"

typedef struct dlc_order {
    int64_t samples;
    uint64_t seed;
    uint32_t *map; /* own; the order of `epoch`; NULL: not shuffled */
    int64_t epoch; /* -1: none yet */
} dlc_order;

/* DLC_ERR_DATA: more than 2^32 - 1 samples to shuffle, whose order would take more
 * memory than a rank has. */
dlc_status dlc_order_open(int64_t samples, uint64_t seed, int shuffle,
                          dlc_order *order);
void dlc_order_close(dlc_order *order); /* a zeroed one is allowed */

/* The sample at a position, 0 .. INT64_MAX. Moving to another epoch costs a shuffle. */
int64_t dlc_order_at(dlc_order *order, int64_t position);

#endif
