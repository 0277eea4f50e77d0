/* The arenas cut into ranges with one lr_mult and one decay_mult that lie in one
 * bucket, so that each range is updated by one call to the device. Used by updater.c
 * and synchronous.c. */
#ifndef DLC_SOLVER_RANGES_H
#define DLC_SOLVER_RANGES_H

#include <dlcore/status.h>
#include <stdint.h>

#include "solver/segment.h"

typedef struct dlc_param_range {
    size_t begin, count;
    size_t slot_begin; /* where it begins in the slots */
    int32_t segment;   /* the first that it has elements of */
    float lr_mult, decay_mult;
} dlc_param_range;

/* Initialize with {0}. */
typedef struct dlc_param_ranges {
    dlc_param_range *at;
    size_t
        *first; /* index into `at` of each bucket's first range; one more at the end */
    int32_t buckets;
} dlc_param_ranges;

typedef struct dlc_param_ranges_args {
    const dlc_segment *segment; /* ascending */
    int32_t segments;
    size_t count; /* elements of the arena without control words */

    const size_t
        *bucket_begin; /* buckets + 1 elements; NULL: the arena is one bucket */
    int32_t buckets;

    /* Of bucket b only [shard_begin[b], shard_end[b]) is kept, which the slots have at
     * slot_begin[b]. NULL: all of it. */
    const size_t *shard_begin, *shard_end, *slot_begin;

    int whole; /* one range for each segment: neighbours are not joined */
} dlc_param_ranges_args;

/* Cuts the segments at the borders of the buckets; segments that are never updated
 * (lr_mult 0) are left out. DLC_ERR_NOMEM, or DLC_ERR_INTERNAL where segments and
 * buckets contradict each other. */
dlc_status dlc_param_ranges_make(const dlc_param_ranges_args *args,
                                 dlc_param_ranges *ranges);
void dlc_param_ranges_free(dlc_param_ranges *ranges); /* a zeroed one is allowed */

#endif
