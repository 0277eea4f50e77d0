/* The gradients of a net cut into buckets, in the order in which backward fills them.
 */
#ifndef DLC_PLAN_BUCKETS_H
#define DLC_PLAN_BUCKETS_H

#include "plan/exchange.h"

/* Whole layers first .. last; or one of several parts of a large one. */
typedef struct dlc_plan_piece {
    size_t first, last;
    double bytes;
} dlc_plan_piece;

/* Start with {0}; release with dlc_plan_buckets_free. */
typedef struct dlc_plan_buckets {
    dlc_plan_piece *piece; /* own */
    size_t count;
} dlc_plan_buckets;

/* `bytes`: each layer's that are exchanged; a bucket is closed when it has `target`. */
dlc_status dlc_plan_buckets_cut(const double *bytes, size_t layers, double target,
                                dlc_plan_buckets *buckets);
void dlc_plan_buckets_free(dlc_plan_buckets *buckets);

#endif
