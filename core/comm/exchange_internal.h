/* The exchanger's state, shared by exchanger.c (opening, closing, the stream-ordered
 * table) and exchange_thread.c (the exchange by a CPU thread). */
#ifndef DLC_COMM_EXCHANGE_INTERNAL_H
#define DLC_COMM_EXCHANGE_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include "comm/exchange.h"
#include "comm/stream_ordered.h"

/* What can be done with a bucket. */
typedef enum dlc_bucket_op {
    DLC_BUCKET_REDUCE, /* all-reduce, or reduce-scatter if the bucket is sharded */
    DLC_BUCKET_ALL_GATHER,
    DLC_BUCKET_FUSED_UPDATE,
    DLC_BUCKET_OPS
} dlc_bucket_op;

typedef struct dlc_bucket_task {
    dlc_bucket_op op;
    int32_t bucket;
    const dlc_update_range *ranges; /* of a fused update */
    int32_t count;
} dlc_bucket_task;

struct dlc_exchanger {
    dlc_exchange_args args;
    size_t *begin; /* owned; buckets + 1 */
    size_t *shard; /* owned; with shard_optimizer: where this rank's shard of each
                      bucket begins, then where each ends, then where each begins in
                      a slot, and where that ends */
    dlc_exchange table;

    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the exchange thread: there is a task, or it must stop */
    pthread_cond_t done; /* for the train thread: a task is done, or has failed */

    /* Guarded by `lock`: */
    dlc_bucket_task *tasks;        /* owned; a ring of DLC_BUCKET_OPS * buckets */
    uint64_t started, ended;       /* tasks since open */
    char *pending[DLC_BUCKET_OPS]; /* owned; per bucket: started and not done */
    int32_t gathering;             /* buckets whose weights are being distributed */
    int running, stop;
    dlc_status failed;
    char *detail; /* owned; of the failure */
    dlc_exchange_stats stats;

    dlc_memory next; /* newest_first: the number of the bucket that rank 0 chose */
    dlc_stream_ordered
        *stream_ordered; /* owned; NULL: the thread works, or nothing does */
    /* Owned; with args.queue: one event per bucket, reached when the queue has done the
     * work that it held when the task was started. */
    dlc_event **ready[DLC_BUCKET_OPS];
};

/* Whether a bucket's updates are sharded. The last bucket's are not: it contains the
 * control words, which every rank reads. */
int dlc_exchanger_is_sharded(const dlc_exchanger *x, int32_t bucket);

/* DLC_ERR_INTERNAL if there is no such bucket. */
dlc_status dlc_exchanger_check_bucket(const dlc_exchanger *x, int32_t bucket);

/* How many tasks the ring holds. */
static inline size_t dlc_exchanger_ring(const dlc_exchanger *x) {
    return (size_t)DLC_BUCKET_OPS * (size_t)x->args.buckets;
}

/* Starts the exchange thread (exchange_thread.c). */
dlc_status dlc_exchange_thread_start(dlc_exchanger *x);
/* Stops it, cancelling what is in flight, and waits for its end. */
void dlc_exchange_thread_stop(dlc_exchanger *x);

/* The calls of dlc_exchange, for tasks done by a thread; with one rank they do nothing.
 */
dlc_status dlc_exchange_thread_reduce(void *context, int32_t bucket);
dlc_status dlc_exchange_thread_all_gather(void *context, int32_t bucket);
dlc_status dlc_exchange_thread_fused_update(void *context, int32_t bucket,
                                            const dlc_update_range *ranges,
                                            int32_t count);
dlc_status dlc_exchange_thread_wait(void *context, int32_t bucket);
dlc_status dlc_exchange_thread_flush(void *context);

#endif
