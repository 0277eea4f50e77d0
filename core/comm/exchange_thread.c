/* The exchange by a CPU thread: a ring of tasks, one per bucket and operation. The
 * exchange thread does the next task, or the train thread if it waits for one.
 *
 * One mutex guards the ring. `running` is set while a thread uses the communicator,
 * without the mutex; no other thread uses it then, so that the communicator sees one
 * thread at a time. Called by the exchanger's table.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/exchange_internal.h"

/* ---- Doing tasks --------------------------------------------------------------- */

static int has_work(const dlc_exchanger *x) {
    return x->started > x->ended && !x->running && x->failed == DLC_OK;
}

/* Whether the train thread, which is waiting, may do the next task itself. Not if rank
 * 0 chooses the bucket: it may choose one that this thread has yet to start. */
static int may_help(const dlc_exchanger *x) {
    return has_work(x) && !x->args.newest_first;
}

static dlc_status do_task(dlc_exchanger *x, const dlc_bucket_task *what) {
    const dlc_exchange_args *args = &x->args;
    size_t at = x->begin[what->bucket], count = x->begin[what->bucket + 1] - at;

    if (what->op == DLC_BUCKET_ALL_GATHER)
        return dlc_comm_all_gather(args->comm, args->weights + at, count);
    if (what->op == DLC_BUCKET_FUSED_UPDATE)
        return dlc_comm_fused_update(args->comm, args->gradients + at,
                                     args->weights + at, count, what->ranges,
                                     what->count);
    if (dlc_exchanger_is_sharded(x, what->bucket))
        return dlc_comm_reduce_scatter(args->comm, args->gradients + at, count);
    return dlc_comm_all_reduce(args->comm, args->gradients + at, count);
}

static void report_activity(const dlc_exchanger *x, const dlc_bucket_task *what) {
    static const char *const also[DLC_BUCKET_OPS] = {"", " (weights)",
                                                     " (and weights)"};
    char text[32];
    if (!x->args.on_activity)
        return;
    size_t bytes = (x->begin[what->bucket + 1] - x->begin[what->bucket]) *
                   sizeof(float);
    (void)snprintf(text, sizeof text, "bucket %d%s", what->bucket, also[what->op]);
    x->args.on_activity(x->args.activity_context, text, bytes);
}

/* Distributes rank 0's choice to all ranks. Without the lock. */
static dlc_status agree_on_bucket(dlc_exchanger *x, int32_t *bucket) {
    const dlc_exchange_args *args = &x->args;
    if (x->table.rank == 0)
        DLC_TRY(args->device_ops->copy(args->device, NULL, x->next.base, bucket,
                                       sizeof *bucket));
    DLC_TRY(dlc_comm_broadcast(args->comm, 0, x->next.base, sizeof *bucket));
    return args->device_ops->copy(args->device, NULL, bucket, x->next.base,
                                  sizeof *bucket);
}

/* Whether the queue, if there is one, has done the work that fills the bucket. */
static int is_filled(const dlc_exchanger *x, int32_t bucket) {
    int done = 1;
    if (x->ready[DLC_BUCKET_REDUCE] &&
        x->args.device_ops->queues->event_done(
            x->args.device, x->ready[DLC_BUCKET_REDUCE][bucket], &done) != DLC_OK)
        return 1; /* await_filled reports the error */
    return done;
}

/* Returns the newest of the started buckets that is filled; the first if none is. With
 * the lock held. */
static int32_t newest_filled(const dlc_exchanger *x) {
    int32_t first = 0;
    for (int32_t b = x->args.buckets - 1; b >= 0; b--) {
        if (!x->pending[DLC_BUCKET_REDUCE][b])
            continue;
        if (is_filled(x, b))
            return b;
        first = b;
    }
    return first;
}

/* Chooses rank 0's newest bucket, whose weights the next forward pass needs first, and
 * waits until it has been started on this rank, too. Called with the lock held, which
 * is released in between. */
static dlc_status choose_newest(dlc_exchanger *x, int32_t *bucket) {
    int32_t newest = newest_filled(x);
    (void)pthread_mutex_unlock(&x->lock);
    dlc_status status = agree_on_bucket(x, &newest);
    (void)pthread_mutex_lock(&x->lock);
    if (status == DLC_OK)
        status = dlc_exchanger_check_bucket(x, newest);
    while (status == DLC_OK && !x->pending[DLC_BUCKET_REDUCE][newest] && !x->stop)
        (void)pthread_cond_wait(&x->work, &x->lock);
    if (status == DLC_OK && x->stop)
        status = dlc_fail(DLC_ERR_CANCELLED, "the exchange was cancelled");
    if (status == DLC_OK)
        *bucket = newest;
    return status;
}

static dlc_status await_filled(dlc_exchanger *x, const dlc_bucket_task *what) {
    if (!x->ready[what->op])
        return DLC_OK;
    return x->args.device_ops->queues->event_sync(x->args.device,
                                                  x->ready[what->op][what->bucket]);
}

/* Whether the device is idle during this task: with a queue, once backward is done.
 * (The train thread runs ahead of the device, so its own waiting says nothing.) With
 * the lock held. */
static int is_exposed(const dlc_exchanger *x, const dlc_bucket_task *what) {
    int32_t last = x->args.buckets - 1;
    return x->ready[DLC_BUCKET_REDUCE] &&
           (what->op == DLC_BUCKET_ALL_GATHER ||
            (x->pending[DLC_BUCKET_REDUCE][last] && is_filled(x, last)));
}

/* Does the next task. Called with the lock held, which is released in between. */
static void run_next(dlc_exchanger *x) {
    dlc_bucket_task what = x->tasks[x->ended % dlc_exchanger_ring(x)];
    dlc_status status = DLC_OK;

    x->running = 1;
    if (x->args.newest_first)
        status = choose_newest(x, &what.bucket);
    (void)pthread_mutex_unlock(&x->lock);
    if (status == DLC_OK)
        status = await_filled(x, &what);
    (void)pthread_mutex_lock(&x->lock);
    int exposed = is_exposed(x, &what);
    (void)pthread_mutex_unlock(&x->lock);
    uint64_t since = dlc_now_ns();
    if (status == DLC_OK) {
        report_activity(x, &what);
        status = do_task(x, &what);
    }
    double seconds = dlc_since(since);
    char *detail = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    if (x->args.on_activity && status == DLC_OK)
        x->args.on_activity(x->args.activity_context, NULL, 0);
    (void)pthread_mutex_lock(&x->lock);

    x->running = 0;
    x->ended++;
    x->pending[what.op][what.bucket] = 0;
    x->gathering -= what.op != DLC_BUCKET_REDUCE;
    if (what.op != DLC_BUCKET_ALL_GATHER)
        x->stats.bytes += (x->begin[what.bucket + 1] - x->begin[what.bucket]) *
                          sizeof(float);
    x->stats.busy += seconds;
    x->stats.waited += exposed ? seconds : 0;
    if (status != DLC_OK) {
        x->failed = status;
        x->detail = detail;
    }
    (void)pthread_cond_broadcast(&x->done);
}

static void *thread_main(void *context) {
    dlc_exchanger *x = context;

    dlc_thread_request_short_slices();
    (void)pthread_mutex_lock(&x->lock);
    while (!x->stop) {
        if (has_work(x))
            run_next(x);
        else
            (void)pthread_cond_wait(&x->work, &x->lock);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return NULL;
}

dlc_status dlc_exchange_thread_start(dlc_exchanger *x) {
    DLC_TRY(dlc_thread_start(&x->thread, "dlc-exchange", thread_main, x));
    x->has_thread = 1;
    return DLC_OK;
}

void dlc_exchange_thread_stop(dlc_exchanger *x) {
    if (!x->has_thread)
        return;
    (void)pthread_mutex_lock(&x->lock);
    x->stop = 1;
    if (x->running || x->started > x->ended)
        dlc_comm_cancel(x->args.comm);
    (void)pthread_cond_signal(&x->work);
    (void)pthread_mutex_unlock(&x->lock);
    (void)pthread_join(x->thread, NULL);
}

/* ---- The calls of the train thread
 * ------------------------------------------------------------- */

static dlc_status failure(const dlc_exchanger *x) {
    return dlc_fail(x->failed, "%s", x->detail ? x->detail : "the exchange failed");
}

/* Records the event that the exchange thread waits for before it does the task. */
static dlc_status record_ready(const dlc_exchanger *x, dlc_bucket_op op,
                               int32_t bucket) {
    const dlc_exchange_args *args = &x->args;
    if (!x->ready[op])
        return DLC_OK;
    return args->device_ops->queues->event_record(args->device, args->queue,
                                                  x->ready[op][bucket]);
}

/* Adds a task. With the lock held. */
static dlc_status add_task(dlc_exchanger *x, const dlc_bucket_task *what) {
    if (x->failed != DLC_OK)
        return failure(x);
    if (x->pending[what->op][what->bucket])
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the consistency model started bucket %d twice without a wait",
                        what->bucket);
    DLC_TRY(record_ready(x, what->op, what->bucket));
    x->tasks[x->started % dlc_exchanger_ring(x)] = *what;
    x->started++;
    x->pending[what->op][what->bucket] = 1;
    x->gathering += what->op != DLC_BUCKET_REDUCE;
    (void)pthread_cond_signal(&x->work);
    return DLC_OK;
}

static dlc_status enqueue(dlc_exchanger *x, const dlc_bucket_task *what) {
    if (x->table.ranks == 1)
        return DLC_OK;
    (void)pthread_mutex_lock(&x->lock);
    dlc_status status = add_task(x, what);
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

dlc_status dlc_exchange_thread_reduce(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    return enqueue(x, &(dlc_bucket_task){.op = DLC_BUCKET_REDUCE, .bucket = bucket});
}

dlc_status dlc_exchange_thread_all_gather(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    return dlc_exchanger_is_sharded(x, bucket)
               ? enqueue(x, &(dlc_bucket_task){.op = DLC_BUCKET_ALL_GATHER,
                                               .bucket = bucket})
               : DLC_OK;
}

dlc_status dlc_exchange_thread_fused_update(void *context, int32_t bucket,
                                            const dlc_update_range *ranges,
                                            int32_t count) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    if (!dlc_exchanger_is_sharded(x, bucket))
        return dlc_fail(DLC_ERR_INTERNAL,
                        "a fused update of bucket %d, which isn't sharded", bucket);
    return enqueue(x,
                   &(dlc_bucket_task){DLC_BUCKET_FUSED_UPDATE, bucket, ranges, count});
}

static int is_reduced(const dlc_exchanger *x, int32_t bucket) {
    return !x->pending[DLC_BUCKET_REDUCE][bucket];
}

static int is_flushed(const dlc_exchanger *x, int32_t bucket) {
    (void)bucket;
    return x->gathering == 0;
}

static dlc_status wait_until(dlc_exchanger *x,
                             int (*holds)(const dlc_exchanger *x, int32_t bucket),
                             int32_t bucket) {
    (void)pthread_mutex_lock(&x->lock);
    if (!holds(x, bucket)) {
        uint64_t since = dlc_now_ns();
        while (!holds(x, bucket) && x->failed == DLC_OK) {
            if (may_help(x))
                run_next(x);
            else
                dlc_thread_wait(&x->done, &x->lock, dlc_comm_check, x->args.comm);
        }
        if (has_work(x)) /* which the exchange thread could not do during the last */
            (void)pthread_cond_signal(&x->work);
        x->stats.waited += x->ready[DLC_BUCKET_REDUCE] ? 0 : dlc_since(since);
    }
    dlc_status status = x->failed == DLC_OK ? DLC_OK : failure(x);
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

dlc_status dlc_exchange_thread_wait(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(dlc_exchanger_check_bucket(x, bucket));
    return x->table.ranks == 1 ? DLC_OK : wait_until(x, is_reduced, bucket);
}

dlc_status dlc_exchange_thread_flush(void *context) {
    dlc_exchanger *x = context;
    return x->table.ranks == 1 ? DLC_OK : wait_until(x, is_flushed, 0);
}
