/* Buckets: how the session cuts the gradient arena for the exchange, and the same as
 * the planner models it, of layers' gradients in the order in which backward fills
 * them. Called by the session and by step.c. */
#ifndef DLC_PLAN_BUCKETS_H
#define DLC_PLAN_BUCKETS_H

#include <dlcore/transport.h>

#include "plan/exchange.h"

/* A bucket: layers first .. last, or one of several parts of a large one. */
typedef struct dlc_plan_bucket {
    size_t first, last;
    double bytes;
} dlc_plan_bucket;

/* Seconds of reducing `bytes` in buckets of the best size, by a transport or a stack of
 * levels of this prediction. Fits dlc_choose_args.cost. */
double dlc_plan_reduction(const dlc_transport_prediction *prediction, double bytes);

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

/* Cuts an arena into buckets of whole segments, ending each as soon as it holds
 * `target_bytes`; a bucket that holds several times that is cut into as many.
 * segment_end[i] is where segment i ends, in elements, ascending. *begin gets
 * *buckets + 1 elements; release it with dlc_free. No segments: no buckets. */
dlc_status dlc_plan_arena_buckets(const size_t *segment_end, size_t segments,
                                  size_t target_bytes, size_t **begin,
                                  int32_t *buckets);

/* For sharded updates: moves the borders down to multiples of `unit` elements, so that
 * every rank's shard of a bucket is as large and whole pieces (DLC_SQUARE_PIECE). What
 * remains of the first `count` elements, and all behind them, is the last bucket, which
 * is not sharded. */
void dlc_plan_cut_shards(size_t unit, size_t count, size_t *begin, int32_t *buckets);

#endif
