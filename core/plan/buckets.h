/* Buckets as the planner models them: the layers' gradients in the order in which
 * backward fills them, cut as core/comm/buckets.c does. Called by step.c. */
#ifndef DLC_PLAN_BUCKETS_H
#define DLC_PLAN_BUCKETS_H

#include "plan/exchange.h"

/* A bucket: layers first .. last, or one of several parts of a large one. */
typedef struct dlc_plan_bucket {
    size_t first, last;
    double bytes;
} dlc_plan_bucket;

/* Start with {0}; release with dlc_plan_buckets_free. */
typedef struct dlc_plan_buckets {
    dlc_plan_bucket *bucket; /* owned */
    size_t count;
} dlc_plan_buckets;

/* `bytes`: of each layer, what is exchanged. A bucket is closed when it holds `target`
 * bytes. */
dlc_status dlc_plan_buckets_cut(const double *bytes, size_t layers, double target,
                                dlc_plan_buckets *buckets);
void dlc_plan_buckets_free(dlc_plan_buckets *buckets);

#endif
