/* The exchange of gradients while backward still runs.
 *
 * The gradient arena is cut into buckets. The train thread starts a bucket when
 * backward has filled it; one thread of the exchanger sums the buckets over all
 * ranks, in the order in which they were started, while the train thread goes on.
 * A train thread that waits for a bucket which nobody has begun yet does the work
 * itself, instead of waking the other thread and going to sleep. Where the transport
 * sums on a queue of the device there is no thread (queued.h).
 *
 * With sharded updates a bucket's sum goes to its owners only (a reduce-scatter), each
 * updates its shard of the weights, and these go to everybody (an all-gather): as many
 * bytes as an all-reduce, and each weight is updated once, not once a rank.
 */
#ifndef DLC_COMM_EXCHANGE_H
#define DLC_COMM_EXCHANGE_H

#include <dlcore/solver.h>

#include "comm/comm.h"

/* Cuts an arena into buckets of whole segments, each as soon as it holds
 * `target_bytes`; what holds several times that is cut in as many. segment_end[i] is
 * where segment i ends, in elements, rising. *begin gets *buckets + 1 elements; release
 * it with dlc_free. No segments: no buckets. */
dlc_status dlc_exchange_plan(const size_t *segment_end, size_t segments,
                             size_t target_bytes, size_t **begin, int32_t *buckets);

typedef struct dlc_exchanger dlc_exchanger;

typedef struct dlc_exchange_args {
    dlc_comm *comm;
    const dlc_device_ops *device_ops; /* of the arenas */
    dlc_device *device;
    /* That fills the gradients and updates the weights; NULL: they are filled and
     * updated when its calls return. With a queue the exchange waits for what it had to
     * do, and is itself work on a queue where the communicator can. */
    dlc_queue *queue;
    float *gradients;
    float *weights;      /* laid out alike; needed for shards only */
    const size_t *begin; /* of the buckets, buckets + 1 elements; copied */
    int32_t buckets;
    int shards;       /* sharded updates; the last bucket, whose tail all ranks need, is
                         summed for all and updated by all */
    int newest_first; /* of the buckets that wait, the last one started goes next, as
                         rank 0 sees it, not the first; without shards. Nobody may wait
                         for a bucket before all of them have been started */
    /* Optional: told what is exchanged, from the thread that does it; NULL: nothing
     * any more. */
    void (*watch)(void *context, const char *what, uint64_t bytes);
    void *watch_context;
} dlc_exchange_args;

/* What was exchanged since open. */
typedef struct dlc_exchange_stats {
    uint64_t bytes; /* of gradients that were summed */
    double busy;    /* seconds that the exchange took */
    double waited;  /* seconds that the train thread stood still for it */
} dlc_exchange_stats;

/* The exchanger uses `comm` from its own thread: nobody else may, as long as a
 * bucket that was started has not been waited for. With one rank there is no thread,
 * and nothing is done. */
dlc_status dlc_exchanger_open(const dlc_exchange_args *args, dlc_exchanger **exchanger);

/* Also where sums are under way: they are given up, and the communicator with them.
 * NULL allowed. */
void dlc_exchanger_close(dlc_exchanger *exchanger);

/* For the solver; valid until close. Its calls come from the train thread. A bucket
 * may be started again when it has been waited for. */
const dlc_exchange *dlc_exchanger_table(const dlc_exchanger *exchanger);

/* With shards: everybody's part of an arena laid out like the weights (a solver's
 * slot) to everybody. Blocks; all ranks together, between iterations. Without: nothing.
 */
dlc_status dlc_exchanger_gather(dlc_exchanger *exchanger, float *arena);

/* Is the exchange all work on a queue, so that it can be recorded? Then failures show
 * in dlc_comm_poll alone, and nobody knows how long it took (stats.busy is 0). */
int dlc_exchanger_is_queued(const dlc_exchanger *exchanger);

/* A recording has done one whole exchange. */
void dlc_exchanger_count(dlc_exchanger *exchanger);

dlc_exchange_stats dlc_exchanger_stats(dlc_exchanger *exchanger);

/* The share of the exchange that the train thread did not wait for, 0 .. 1. */
double dlc_exchange_hidden(const dlc_exchange_stats *stats);

#endif
