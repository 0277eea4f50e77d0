/* The exchange of gradients while backward still runs.
 *
 * The gradient arena is cut into buckets. The train thread starts a bucket when
 * backward has filled it; one thread of the exchanger sums the buckets over all
 * ranks, in the order in which they were started, while the train thread goes on.
 * A train thread that waits for a bucket which nobody has begun yet does the work
 * itself, instead of waking the other thread and going to sleep.
 */
#ifndef DLC_COMM_EXCHANGE_H
#define DLC_COMM_EXCHANGE_H

#include <dlcore/solver.h>

#include "comm/comm.h"

/* Cuts an arena into buckets of whole segments, each as soon as it holds
 * `target_bytes`. segment_end[i] is where segment i ends, in elements, rising.
 * *begin gets *buckets + 1 elements; release it with dlc_free. No segments: no
 * buckets. */
dlc_status dlc_exchange_plan(const size_t *segment_end, size_t segments,
                             size_t target_bytes, size_t **begin, int32_t *buckets);

typedef struct dlc_exchanger dlc_exchanger;

/* What was exchanged since open. */
typedef struct dlc_exchange_stats {
    uint64_t bytes; /* of gradients that were summed */
    double busy;    /* seconds that the sums took */
    double waited;  /* seconds that the train thread stood still for them */
} dlc_exchange_stats;

/* The exchanger uses `comm` from its own thread: nobody else may, as long as a
 * bucket that was started has not been waited for. `begin` is copied. With one rank
 * there is no thread, and nothing is done. */
dlc_status dlc_exchanger_open(dlc_comm *comm, float *gradients, const size_t *begin,
                              int32_t buckets, dlc_exchanger **exchanger);

/* Also where sums are under way: they are given up, and the communicator with them.
 * NULL allowed. */
void dlc_exchanger_close(dlc_exchanger *exchanger);

/* For the solver; valid until close. Its calls come from the train thread. A bucket
 * may be started again when it has been waited for. */
const dlc_exchange *dlc_exchanger_table(const dlc_exchanger *exchanger);

dlc_exchange_stats dlc_exchanger_stats(dlc_exchanger *exchanger);

/* The share of the exchange that the train thread did not wait for, 0 .. 1. */
double dlc_exchange_hidden(const dlc_exchange_stats *stats);

#endif
