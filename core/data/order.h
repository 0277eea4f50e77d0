/* The endless sequence of samples that training goes through: epoch after epoch, each
 * with a new order of all samples that depends on the seed and the epoch alone. Used by
 * the feed.
 *
 * With a window, an epoch is read in pieces that follow each other in the source:
 * blocks of samples are shuffled, and then the samples of DLC_ORDER_BLOCKS blocks at a
 * time, which are a window:
 *
 *     the source    0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15
 *     blocks        8 9 10 11   0 1 2 3 | 12 13 14 15   4 5 6 7
 *     in windows    2 9 0 11 10 3 8 1   | 14 4 12 6 7 15 5 13    (of two blocks)
 */
#ifndef DLC_DATA_ORDER_H
#define DLC_DATA_ORDER_H

#include <stdint.h>

#include "base/status.h"

/* Blocks of a window. */
enum { DLC_ORDER_BLOCKS = 16 };
#define DLC_ORDER_WINDOW_MAX (1 << 24)

typedef struct dlc_order {
    int64_t samples, window, block;
    uint64_t seed;
    int shuffle;
    uint32_t *map;  /* own; the order of the samples of a window, or of an epoch that is
                       no longer than the largest window; NULL: none */
    uint64_t drawn; /* number of that window; UINT64_MAX: none yet */
} dlc_order;

/* `window` is the samples of a window, at most DLC_ORDER_WINDOW_MAX; 0: all samples. */
dlc_status dlc_order_open(int64_t samples, uint64_t seed, int shuffle, int64_t window,
                          dlc_order *order);
void dlc_order_close(dlc_order *order); /* a zeroed one is allowed */
/* The memory that such an order takes. */
uint64_t dlc_order_bytes(int64_t samples, int shuffle, int64_t window);

/* Writes the samples at the positions from `position` on, of 0 .. INT64_MAX, to
 * `index`. Moving to another window, or to another epoch if there is none, costs a
 * shuffle of it.
 */
void dlc_order_take(dlc_order *order, int64_t position, int64_t count, int64_t *index);

static inline int64_t dlc_order_at(dlc_order *order, int64_t position) {
    int64_t index;
    dlc_order_take(order, position, 1, &index);
    return index;
}

/* Where a permutation of 0 .. count - 1, one for each seed and stream, takes i.
 * `count` is at least 1, and at most 2^62. */
int64_t dlc_permutation_at(uint64_t seed, uint64_t stream, int64_t count, int64_t i);

#endif
