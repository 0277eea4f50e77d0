/* The exchanger: the exchange of gradients that overlaps the backward pass.
 *
 * The gradient arena is cut into buckets. The train thread starts a bucket when
 * backward has filled it; the exchanger's own thread reduces the buckets over all
 * ranks, in the order in which they were started, while the train thread goes on. If
 * the train thread waits for a bucket that the exchange thread hasn't begun, it does
 * the work itself, which saves waking a thread and sleeping. Where the transport
 * reduces on a queue of the device there is no thread.
 *
 * With sharded updates (shard_optimizer) a bucket is reduced with a reduce-scatter,
 * each rank updates its shard of the weights, and an all-gather distributes them: as
 * many bytes as an all-reduce, but each weight is updated once instead of once per
 * rank.
 */
#ifndef DLC_COMM_EXCHANGE_H
#define DLC_COMM_EXCHANGE_H

#include <dlcore/consistency.h>

#include "comm/comm.h"

typedef struct dlc_exchanger dlc_exchanger;

typedef struct dlc_exchange_args {
    dlc_comm *comm;
    const dlc_device_ops *device_ops; /* of the arenas */
    dlc_device *device;
    /* The queue that computes gradients and updates weights; NULL: both are done when
     * the device's calls return. With a queue the exchange waits for the work that was
     * queued before a bucket was started, and is stream-ordered if possible. */
    dlc_queue *queue;
    float *gradients;
    float *weights;      /* laid out as the gradients; only for shard_optimizer */
    const size_t *begin; /* where the buckets begin, buckets + 1 elements; copied */
    int32_t buckets;
    int shard_optimizer; /* sharded updates. The last bucket, whose control words every
                            rank reads, is all-reduced and updated on all ranks */
    int newest_first; /* of the buckets that were started, reduce the newest first, as
                         seen by rank 0. Not with shard_optimizer; no bucket may be
                         waited for before all of them have been started */
    /* Optional: called with what is being exchanged, and with NULL when it is done,
     * from the thread that does it. */
    void (*on_activity)(void *context, const char *what, uint64_t bytes);
    void *activity_context;
} dlc_exchange_args;

/* What was exchanged since open. */
typedef struct dlc_exchange_stats {
    uint64_t bytes; /* of gradients that were reduced */
    double busy;    /* seconds that the exchange took */
    double waited;  /* seconds that the train thread was idle because of it */
} dlc_exchange_stats;

static inline void dlc_exchange_stats_add(const dlc_exchange_stats *more,
                                          dlc_exchange_stats *sum) {
    sum->bytes += more->bytes;
    sum->busy += more->busy;
    sum->waited += more->waited;
}

/* The exchanger uses `comm` from its own thread: nothing else may while a bucket has
 * been started and not waited for. With one rank it has no thread and does nothing. */
dlc_status dlc_exchanger_open(const dlc_exchange_args *args, dlc_exchanger **exchanger);

/* Reductions in flight are cancelled, together with the communicator. NULL is allowed.
 */
void dlc_exchanger_close(dlc_exchanger *exchanger);

/* The solver's table; valid until close. Its calls must come from the train thread. A
 * bucket may be started again after it has been waited for. */
const dlc_exchange *dlc_exchanger_table(const dlc_exchanger *exchanger);

/* Elements of a solver's slot on this rank: of its shards, or of all. */
size_t dlc_exchanger_slot_count(const dlc_exchanger *exchanger);

/* Collective, blocking, between iterations: with shard_optimizer, all-gathers an arena
 * that is laid out as the weights; otherwise does nothing. */
dlc_status dlc_exchanger_all_gather(dlc_exchanger *exchanger, float *arena);

/* Whether the whole exchange is work on a queue of the device. Then failures show only
 * in dlc_comm_poll, and the duration is unknown (stats.busy is 0). */
int dlc_exchanger_is_stream_ordered(const dlc_exchanger *exchanger);

/* Adds to the statistics one exchange that was replayed from a captured graph. */
void dlc_exchanger_count_replay(dlc_exchanger *exchanger);

dlc_exchange_stats dlc_exchanger_stats(dlc_exchanger *exchanger);

/* The fraction of the exchange that the train thread did not wait for, 0 .. 1. */
double dlc_exchange_hidden_fraction(const dlc_exchange_stats *stats);

#endif
