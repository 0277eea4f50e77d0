/* Opens and closes an exchanger and fills in the table that the solver calls: with the
 * calls of exchange_thread.c, or with stream-ordered ones, which are here.
 */
#include "comm/exchange.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/exchange_internal.h"
#include "comm/team.h"
#include "plugin/device_objects.h"

int dlc_exchanger_is_sharded(const dlc_exchanger *x, int32_t bucket) {
    return x->args.shard_optimizer && bucket < x->args.buckets - 1;
}

dlc_status dlc_exchanger_check_bucket(const dlc_exchanger *x, int32_t bucket) {
    if (bucket < 0 || bucket >= x->table.buckets)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the consistency model asks for bucket %d of %d", bucket,
                        x->table.buckets);
    return DLC_OK;
}

/* ---- The stream-ordered table --------------------------------- */

static dlc_status queue_task(dlc_exchanger *x, dlc_bucket_op op, int32_t bucket) {
    size_t at = x->begin[bucket], count = x->begin[bucket + 1] - at;
    if (op == DLC_BUCKET_ALL_GATHER)
        return dlc_stream_ordered_start(x->stream_ordered, bucket,
                                        dlc_comm_queue_all_gather, x->args.weights + at,
                                        count);
    x->stats.bytes += count * sizeof(float);
    return dlc_stream_ordered_start(x->stream_ordered, bucket,
                                    dlc_exchanger_is_sharded(x, bucket)
                                        ? dlc_comm_queue_reduce_scatter
                                        : dlc_comm_queue_all_reduce,
                                    x->args.gradients + at, count);
}

static dlc_status queued_reduce(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    return queue_task(x, DLC_BUCKET_REDUCE, bucket);
}

static dlc_status queued_all_gather(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    return dlc_exchanger_is_sharded(x, bucket)
               ? queue_task(x, DLC_BUCKET_ALL_GATHER, bucket)
               : DLC_OK;
}

static dlc_status queued_wait(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    return dlc_stream_ordered_wait(x->stream_ordered, bucket);
}

static dlc_status queued_flush(void *context) {
    dlc_exchanger *x = context;
    return dlc_stream_ordered_wait_all(x->stream_ordered);
}

/* ---- Sums ------------------------------------------------------------------ */

/* The sums of a bucket's pieces, as many floats as are twice their number. */
static float *sums_of(const dlc_exchanger *x, double *sums, int32_t bucket,
                      size_t *count) {
    size_t first = x->begin[bucket] / DLC_SQUARE_PIECE;
    *count = 2 * (x->begin[bucket + 1] / DLC_SQUARE_PIECE - first);
    return (float *)(void *)(sums + first);
}

static dlc_status queued_gather_sums(void *context, double *sums) {
    dlc_exchanger *x = context;
    size_t count = 0;
    for (int32_t b = 0; b < x->args.buckets - 1; b++) {
        float *at = sums_of(x, sums, b, &count);
        DLC_TRY(dlc_stream_ordered_start(x->stream_ordered, b,
                                         dlc_comm_queue_all_gather, at, count));
    }
    return dlc_stream_ordered_wait_all(x->stream_ordered);
}

/* The exchange thread is idle, so this thread may use the communicator. */
static dlc_status gather_sums(void *context, double *sums) {
    dlc_exchanger *x = context;
    size_t count = 0;
    if (x->args.queue)
        DLC_TRY(x->args.device_ops->queues->queue_sync(x->args.device, x->args.queue));
    for (int32_t b = 0; b < x->args.buckets - 1; b++) {
        float *at = sums_of(x, sums, b, &count);
        DLC_TRY(dlc_comm_all_gather(x->args.comm, at, count));
    }
    return DLC_OK;
}

/* ---- Opening and closing --------------------------------------------------- */

static dlc_status make_tables(dlc_exchanger *x) {
    size_t count = (size_t)x->args.buckets;
    x->begin = dlc_alloc(count + 1, sizeof *x->begin);
    x->shard = dlc_alloc(3 * count + 1, sizeof *x->shard);
    x->tasks = dlc_alloc(dlc_exchanger_ring(x), sizeof *x->tasks);
    for (int i = 0; i < DLC_BUCKET_OPS; i++)
        x->pending[i] = dlc_alloc(count, sizeof *x->pending[i]);
    if (!x->begin || !x->shard || !x->tasks || !x->pending[DLC_BUCKET_REDUCE] ||
        !x->pending[DLC_BUCKET_ALL_GATHER] || !x->pending[DLC_BUCKET_FUSED_UPDATE])
        return DLC_ERR_NOMEM;
    memcpy(x->begin, x->args.begin, (count + 1) * sizeof *x->begin);
    for (size_t b = 0; b < count; b++) {
        size_t begin = 0, end = x->begin[b + 1] - x->begin[b];
        if (dlc_exchanger_is_sharded(x, (int32_t)b))
            dlc_comm_shard(x->args.comm, end, &begin, &end);
        x->shard[b] = x->begin[b] + begin;
        x->shard[count + b] = x->begin[b] + end;
        x->shard[2 * count + b + 1] = x->shard[2 * count + b] + end - begin;
    }
    return DLC_OK;
}

static void fill_table(dlc_exchanger *x) {
    x->table = (dlc_exchange){
        .size = sizeof x->table,
        .context = x,
        .rank = dlc_comm_rank(x->args.comm),
        .ranks = dlc_comm_ranks(x->args.comm),
        .buckets = x->args.buckets,
        .bucket_begin = x->begin,
        .start = x->stream_ordered ? queued_reduce : dlc_exchange_thread_reduce,
        .wait = x->stream_ordered ? queued_wait : dlc_exchange_thread_wait};
    if (!x->args.shard_optimizer)
        return;
    x->table.shard_begin = x->shard;
    x->table.shard_end = x->shard + x->args.buckets;
    x->table.slot_begin = x->table.shard_end + x->args.buckets;
    x->table.gather_sums = x->stream_ordered ? queued_gather_sums : gather_sums;
    x->table.all_gather = x->stream_ordered ? queued_all_gather
                                            : dlc_exchange_thread_all_gather;
    x->table.flush = x->stream_ordered ? queued_flush : dlc_exchange_thread_flush;
    if (!x->args.queue && dlc_comm_can_fuse_update(x->args.comm))
        x->table.fused_update = dlc_exchange_thread_fused_update;
}

static dlc_status open_stream_ordered(dlc_exchanger *x) {
    dlc_stream_ordered_args args = {.comm = x->args.comm,
                                    .device_ops = x->args.device_ops,
                                    .device = x->args.device,
                                    .queue = x->args.queue,
                                    .buckets = x->args.buckets};
    return dlc_stream_ordered_open(&args, &x->stream_ordered);
}

static dlc_status open_events(dlc_exchanger *x, dlc_bucket_op op) {
    const dlc_exchange_args *args = &x->args;
    x->ready[op] = dlc_alloc((size_t)args->buckets, sizeof(dlc_event *));
    if (!x->ready[op])
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < args->buckets; b++)
        DLC_TRY(
            dlc_device_open_event(args->device_ops, args->device, &x->ready[op][b]));
    return DLC_OK;
}

static void close_events(dlc_exchanger *x, dlc_bucket_op op) {
    const dlc_exchange_args *args = &x->args;
    for (int32_t b = 0; x->ready[op] && b < args->buckets; b++)
        if (x->ready[op][b])
            args->device_ops->queues->event_close(args->device, x->ready[op][b]);
    dlc_free(x->ready[op]);
}

/* Opens what does the tasks: a queue of the device, or a thread. */
static dlc_status open_worker(dlc_exchanger *x) {
    if (x->args.queue && dlc_comm_can_queue(x->args.comm))
        return open_stream_ordered(x);
    for (int i = 0; x->args.queue && i < DLC_BUCKET_OPS; i++)
        DLC_TRY(open_events(x, (dlc_bucket_op)i));
    return dlc_exchange_thread_start(x);
}

dlc_status dlc_exchanger_open(const dlc_exchange_args *args,
                              dlc_exchanger **exchanger) {
    dlc_exchanger *x = dlc_alloc(1, sizeof *x);
    if (!x)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&x->lock, NULL);
    (void)pthread_cond_init(&x->work, NULL);
    (void)pthread_cond_init(&x->done, NULL);
    x->args = *args;
    x->args.shard_optimizer = args->shard_optimizer && dlc_comm_has_shards(args->comm);
    dlc_status status = make_tables(x);
    if (status == DLC_OK && args->newest_first)
        status = dlc_device_alloc(args->device_ops, args->device, sizeof(int32_t), 0,
                                  &x->next);
    if (status == DLC_OK && dlc_comm_ranks(args->comm) > 1)
        status = open_worker(x);
    if (status == DLC_OK)
        fill_table(x);
    if (status != DLC_OK) {
        dlc_exchanger_close(x);
        return status;
    }
    *exchanger = x;
    return DLC_OK;
}

void dlc_exchanger_close(dlc_exchanger *x) {
    if (!x)
        return;
    dlc_exchange_thread_stop(x);
    (void)pthread_cond_destroy(&x->done);
    (void)pthread_cond_destroy(&x->work);
    (void)pthread_mutex_destroy(&x->lock);
    dlc_device_free(x->args.device_ops, x->args.device, &x->next);
    dlc_stream_ordered_close(x->stream_ordered);
    dlc_free(x->detail);
    for (int i = 0; i < DLC_BUCKET_OPS; i++) {
        close_events(x, (dlc_bucket_op)i);
        dlc_free(x->pending[i]);
    }
    dlc_free(x->tasks);
    dlc_free(x->shard);
    dlc_free(x->begin);
    dlc_free(x);
}

const dlc_exchange *dlc_exchanger_table(const dlc_exchanger *x) {
    return &x->table;
}

size_t dlc_exchanger_slot_count(const dlc_exchanger *x) {
    return x->table.slot_begin ? x->table.slot_begin[x->args.buckets]
                               : x->begin[x->args.buckets];
}

dlc_status dlc_exchanger_all_gather(dlc_exchanger *x, float *arena) {
    for (int32_t b = 0; b < x->args.buckets; b++)
        if (dlc_exchanger_is_sharded(x, b))
            DLC_TRY(dlc_comm_all_gather(x->args.comm, arena + x->begin[b],
                                        x->begin[b + 1] - x->begin[b]));
    return DLC_OK;
}

int dlc_exchanger_is_stream_ordered(const dlc_exchanger *x) {
    return x->stream_ordered != NULL;
}

void dlc_exchanger_count_replay(dlc_exchanger *x) {
    if (x->table.ranks > 1)
        x->stats.bytes += x->begin[x->args.buckets] * sizeof(float);
}

dlc_exchange_stats dlc_exchanger_stats(dlc_exchanger *x) {
    (void)pthread_mutex_lock(&x->lock);
    dlc_exchange_stats stats = x->stats;
    (void)pthread_mutex_unlock(&x->lock);
    return stats;
}

double dlc_exchange_hidden_fraction(const dlc_exchange_stats *stats) {
    if (stats->busy <= 0.0 || stats->waited >= stats->busy)
        return 0.0;
    return 1.0 - stats->waited / stats->busy;
}
