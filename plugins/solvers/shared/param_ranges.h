/* The arenas cut into ranges with one lr_mult and one decay_mult that lie in one
 * bucket, so that a solver updates each range by one call to the device. */
#ifndef DLC_SOLVERS_SHARED_PARAM_RANGES_H
#define DLC_SOLVERS_SHARED_PARAM_RANGES_H

#include <dlcore/solver.h>

typedef struct param_range {
    size_t begin, count;
    float lr_mult, decay_mult;
} param_range;

/* Initialize with {0}. */
typedef struct param_ranges {
    param_range *at;
    size_t
        *first; /* index into `at` of each bucket's first range; one more at the end */
} param_ranges;

/* Cuts the segments at the borders of the buckets, after checking what the core
 * promises about both. Of bucket b only [shard_begin[b], shard_end[b]) is kept, or all
 * of it where these are NULL; segments that are never updated (lr_mult 0) are left out.
 * DLC_ERR_NOMEM, or DLC_ERR_INTERNAL where the core broke a promise. Free with
 * param_ranges_free. */
dlc_status param_ranges_make(const dlc_host *host, const dlc_solver_args *args,
                             const size_t *shard_begin, const size_t *shard_end,
                             param_ranges *ranges);
void param_ranges_free(const dlc_host *host,
                       param_ranges *ranges); /* a zeroed one is allowed */

#endif
