/* The arenas cut into stretches: inside one bucket, where the multipliers of rate and
 * decay are the same, so that each is one call of the device. */
#ifndef DLC_SHARED_STRETCHES_H
#define DLC_SHARED_STRETCHES_H

#include <dlcore/solver.h>

typedef struct stretch {
    size_t begin, count;
    float rate, decay;
} stretch;

/* Start with {0}. */
typedef struct stretches {
    stretch *at;
    size_t *first; /* of each bucket, and one behind the last */
} stretches;

/* Cuts the segments at the buckets' borders, after a check of what the core promises
 * of both. Of bucket b only [own_begin[b], own_end[b]) is kept, all of it where they
 * are NULL; segments that are never updated (rate 0) are left out. */
dlc_status stretches_cut(const dlc_host *host, const dlc_solver_args *args,
                         const size_t *own_begin, const size_t *own_end,
                         stretches *cut);
void stretches_free(const dlc_host *host, stretches *cut); /* a zeroed one is allowed */

#endif
