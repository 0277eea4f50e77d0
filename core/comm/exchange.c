/* The exchanger. Its work is a ring of tasks, one per bucket and operation, which the
 * exchange thread does, or the train thread if it waits for one; or it is
 * stream-ordered: work on a queue of its own, joined to the computing queue by an event
 * per bucket in each direction. Then no CPU thread takes part, nothing blocks, and all
 * of it can be captured.
 *
 * One mutex guards the ring. `running` is set while a thread uses the communicator,
 * without the mutex; no other thread uses it then, so that the communicator sees one
 * thread at a time.
 */
#include "comm/exchange.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/team.h"
#include "plugin/device_objects.h"

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
    /* Owned; with args.queue: one event per bucket, reached when the queue has done the
     * work that it held when the task was started. */
    dlc_event **ready[DLC_BUCKET_OPS];

    /* Stream-ordered: NULL if the thread works, or nothing does. */
    dlc_queue *side_queue; /* owned; the exchange's */
    dlc_event **reduced;   /* owned; per bucket */
    dlc_event *all_done;   /* owned */
};

/* Whether a bucket's updates are sharded. The last bucket's are not: it contains the
 * control words, which every rank reads. */
static int is_bucket_sharded(const dlc_exchanger *x, int32_t bucket) {
    return x->args.shard_optimizer && bucket < x->args.buckets - 1;
}

static dlc_status check_bucket(const dlc_exchanger *x, int32_t bucket) {
    if (bucket < 0 || bucket >= x->table.buckets)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the consistency model asks for bucket %d of %d", bucket,
                        x->table.buckets);
    return DLC_OK;
}

static size_t bucket_count(const dlc_exchanger *x, int32_t bucket) {
    return x->begin[bucket + 1] - x->begin[bucket];
}

/* How many tasks the ring holds. */
static size_t ring_size(const dlc_exchanger *x) {
    return (size_t)DLC_BUCKET_OPS * (size_t)x->args.buckets;
}

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
    size_t at = x->begin[what->bucket], count = bucket_count(x, what->bucket);

    if (what->op == DLC_BUCKET_ALL_GATHER)
        return dlc_comm_all_gather(args->comm, args->weights + at, count);
    if (what->op == DLC_BUCKET_FUSED_UPDATE)
        return dlc_comm_fused_update(args->comm, args->gradients + at,
                                     args->weights + at, count, what->ranges,
                                     what->count);
    if (is_bucket_sharded(x, what->bucket))
        return dlc_comm_reduce_scatter(args->comm, args->gradients + at, count);
    return dlc_comm_all_reduce(args->comm, args->gradients + at, count);
}

static void report_task(const dlc_exchanger *x, const dlc_bucket_task *what) {
    static const char *const also[DLC_BUCKET_OPS] = {"", " (weights)",
                                                     " (and weights)"};
    char text[32];
    if (!x->args.on_activity)
        return;
    size_t bytes = bucket_count(x, what->bucket) * sizeof(float);
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
        status = check_bucket(x, newest);
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
static void run_next_task(dlc_exchanger *x) {
    dlc_bucket_task what = x->tasks[x->ended % ring_size(x)];
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
        report_task(x, &what);
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
        x->stats.bytes += bucket_count(x, what.bucket) * sizeof(float);
    x->stats.busy += seconds;
    x->stats.waited += exposed ? seconds : 0;
    if (status != DLC_OK) {
        x->failed = status;
        x->detail = detail;
    }
    (void)pthread_cond_broadcast(&x->done);
}

static void *exchange_main(void *context) {
    dlc_exchanger *x = context;

    dlc_thread_request_short_slices();
    (void)pthread_mutex_lock(&x->lock);
    while (!x->stop) {
        if (has_work(x))
            run_next_task(x);
        else
            (void)pthread_cond_wait(&x->work, &x->lock);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* ---- The calls of the train thread ----------------------------------------------- */

static dlc_status exchange_failure(const dlc_exchanger *x) {
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
        return exchange_failure(x);
    if (x->pending[what->op][what->bucket])
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the consistency model started bucket %d twice without a wait",
                        what->bucket);
    DLC_TRY(record_ready(x, what->op, what->bucket));
    x->tasks[x->started % ring_size(x)] = *what;
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

static dlc_status start_reduce(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return enqueue(x, &(dlc_bucket_task){.op = DLC_BUCKET_REDUCE, .bucket = bucket});
}

static dlc_status start_all_gather(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return is_bucket_sharded(x, bucket)
               ? enqueue(x, &(dlc_bucket_task){.op = DLC_BUCKET_ALL_GATHER,
                                               .bucket = bucket})
               : DLC_OK;
}

static dlc_status start_fused_bucket(void *context, int32_t bucket,
                                     const dlc_update_range *ranges, int32_t count) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    if (!is_bucket_sharded(x, bucket))
        return dlc_fail(DLC_ERR_INTERNAL,
                        "a fused update of bucket %d, which isn't sharded", bucket);
    return enqueue(x,
                   &(dlc_bucket_task){DLC_BUCKET_FUSED_UPDATE, bucket, ranges, count});
}

static int is_bucket_reduced(const dlc_exchanger *x, int32_t bucket) {
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
                run_next_task(x);
            else
                dlc_thread_wait(&x->done, &x->lock, dlc_comm_check, x->args.comm);
        }
        if (has_work(x)) /* which the exchange thread could not do during the last */
            (void)pthread_cond_signal(&x->work);
        x->stats.waited += x->ready[DLC_BUCKET_REDUCE] ? 0 : dlc_since(since);
    }
    dlc_status status = x->failed == DLC_OK ? DLC_OK : exchange_failure(x);
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

static dlc_status wait_for_bucket(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return x->table.ranks == 1 ? DLC_OK : wait_until(x, is_bucket_reduced, bucket);
}

static dlc_status flush_all_gathers(void *context) {
    dlc_exchanger *x = context;
    return x->table.ranks == 1 ? DLC_OK : wait_until(x, is_flushed, 0);
}

/* ---- The stream-ordered exchange ------------------------------------------------- */

/* A collective on a queue: dlc_comm_queue_all_reduce and its siblings. */
typedef dlc_status queued_call(dlc_comm *comm, dlc_queue *queue, float *buffer,
                               size_t count);

/* Queues a collective on a bucket, behind the work that args.queue holds now. */
static dlc_status queue_call(dlc_exchanger *x, int32_t bucket, queued_call *call,
                             float *buffer, size_t count) {
    const dlc_device_queue_ops *queues = x->args.device_ops->queues;
    dlc_device *device = x->args.device;
    dlc_event *ready = x->ready[DLC_BUCKET_REDUCE][bucket];

    DLC_TRY(queues->event_record(device, x->args.queue, ready));
    DLC_TRY(queues->event_wait(device, x->side_queue, ready));
    DLC_TRY(call(x->args.comm, x->side_queue, buffer, count));
    return queues->event_record(device, x->side_queue, x->reduced[bucket]);
}

static dlc_status queued_reduce(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    x->stats.bytes += bucket_count(x, bucket) * sizeof(float);
    return queue_call(x, bucket,
                      is_bucket_sharded(x, bucket) ? dlc_comm_queue_reduce_scatter
                                                   : dlc_comm_queue_all_reduce,
                      x->args.gradients + x->begin[bucket], bucket_count(x, bucket));
}

static dlc_status queued_all_gather(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return is_bucket_sharded(x, bucket)
               ? queue_call(x, bucket, dlc_comm_queue_all_gather,
                            x->args.weights + x->begin[bucket], bucket_count(x, bucket))
               : DLC_OK;
}

static dlc_status queued_wait(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return x->args.device_ops->queues->event_wait(x->args.device, x->args.queue,
                                                  x->reduced[bucket]);
}

/* Makes later work on args.queue wait for everything that was started. */
static dlc_status queued_flush(void *context) {
    dlc_exchanger *x = context;
    const dlc_device_queue_ops *queues = x->args.device_ops->queues;
    DLC_TRY(queues->event_record(x->args.device, x->side_queue, x->all_done));
    return queues->event_wait(x->args.device, x->args.queue, x->all_done);
}

/* Waits until a queue is idle; it may hold captured graphs. A transport abandons work
 * that waits for a dead peer only when polled, so it is polled meanwhile, even after an
 * error. */
static void drain_queue(const dlc_exchanger *x, dlc_queue *queue) {
    const dlc_device_queue_ops *queues = x->args.device_ops->queues;
    const struct timespec pause = {.tv_nsec = 100000};
    int done = 0;

    if (queues->event_record(x->args.device, queue, x->all_done) != DLC_OK)
        return;
    while (queues->event_done(x->args.device, x->all_done, &done) == DLC_OK && !done) {
        (void)dlc_comm_poll(x->args.comm);
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- Sums ------------------------------------------------------------------------ */

/* The sums of a bucket's pieces, as many floats as are twice their number. */
static float *piece_sums(const dlc_exchanger *x, double *sums, int32_t bucket,
                         size_t *count) {
    size_t first = x->begin[bucket] / DLC_SQUARE_PIECE;
    *count = 2 * (x->begin[bucket + 1] / DLC_SQUARE_PIECE - first);
    return (float *)(void *)(sums + first);
}

static dlc_status queued_gather_sums(void *context, double *sums) {
    dlc_exchanger *x = context;
    size_t count = 0;
    for (int32_t b = 0; b < x->args.buckets - 1; b++) {
        float *at = piece_sums(x, sums, b, &count);
        DLC_TRY(queue_call(x, b, dlc_comm_queue_all_gather, at, count));
    }
    return queued_flush(x);
}

/* The exchange thread is idle, so this thread may use the communicator. */
static dlc_status gather_sums(void *context, double *sums) {
    dlc_exchanger *x = context;
    size_t count = 0;
    if (x->args.queue)
        DLC_TRY(x->args.device_ops->queues->queue_sync(x->args.device, x->args.queue));
    for (int32_t b = 0; b < x->args.buckets - 1; b++) {
        float *at = piece_sums(x, sums, b, &count);
        DLC_TRY(dlc_comm_all_gather(x->args.comm, at, count));
    }
    return DLC_OK;
}

/* ---- Opening and closing --------------------------------------------------- */

static dlc_status make_tables(dlc_exchanger *x) {
    size_t count = (size_t)x->args.buckets;
    x->begin = dlc_alloc(count + 1, sizeof *x->begin);
    x->shard = dlc_alloc(3 * count + 1, sizeof *x->shard);
    x->tasks = dlc_alloc(ring_size(x), sizeof *x->tasks);
    for (int i = 0; i < DLC_BUCKET_OPS; i++)
        x->pending[i] = dlc_alloc(count, sizeof *x->pending[i]);
    if (!x->begin || !x->shard || !x->tasks || !x->pending[DLC_BUCKET_REDUCE] ||
        !x->pending[DLC_BUCKET_ALL_GATHER] || !x->pending[DLC_BUCKET_FUSED_UPDATE])
        return DLC_ERR_NOMEM;
    memcpy(x->begin, x->args.begin, (count + 1) * sizeof *x->begin);
    for (size_t b = 0; b < count; b++) {
        size_t begin = 0, end = x->begin[b + 1] - x->begin[b];
        if (is_bucket_sharded(x, (int32_t)b))
            dlc_comm_shard(x->args.comm, end, &begin, &end);
        x->shard[b] = x->begin[b] + begin;
        x->shard[count + b] = x->begin[b] + end;
        x->shard[2 * count + b + 1] = x->shard[2 * count + b] + end - begin;
    }
    return DLC_OK;
}

static void fill_exchange_table(dlc_exchanger *x) {
    x->table = (dlc_exchange){.size = sizeof x->table,
                              .context = x,
                              .rank = dlc_comm_rank(x->args.comm),
                              .ranks = dlc_comm_ranks(x->args.comm),
                              .buckets = x->args.buckets,
                              .bucket_begin = x->begin,
                              .start = x->side_queue ? queued_reduce : start_reduce,
                              .wait = x->side_queue ? queued_wait : wait_for_bucket};
    if (!x->args.shard_optimizer)
        return;
    x->table.shard_begin = x->shard;
    x->table.shard_end = x->shard + x->args.buckets;
    x->table.slot_begin = x->table.shard_end + x->args.buckets;
    x->table.gather_sums = x->side_queue ? queued_gather_sums : gather_sums;
    x->table.all_gather = x->side_queue ? queued_all_gather : start_all_gather;
    x->table.flush = x->side_queue ? queued_flush : flush_all_gathers;
    if (!x->args.queue && dlc_comm_can_fuse_update(x->args.comm))
        x->table.fused_update = start_fused_bucket;
}

/* Opens what does the tasks: a queue of the device, or a thread. */
static dlc_status open_worker(dlc_exchanger *x) {
    const dlc_device_ops *ops = x->args.device_ops;
    dlc_device *device = x->args.device;
    int is_queued = x->args.queue && dlc_comm_can_queue(x->args.comm);
    int events = !x->args.queue ? 0 : is_queued ? 1 : DLC_BUCKET_OPS;

    for (int i = 0; i < events; i++)
        DLC_TRY(dlc_device_open_events(ops, device, x->args.buckets, &x->ready[i]));
    if (is_queued) {
        DLC_TRY(dlc_device_open_queue(ops, device, &x->side_queue));
        DLC_TRY(dlc_device_open_events(ops, device, x->args.buckets, &x->reduced));
        return dlc_device_open_event(ops, device, &x->all_done);
    }
    DLC_TRY(dlc_thread_start(&x->thread, "dlc-exchange", exchange_main, x));
    x->has_thread = 1;
    return DLC_OK;
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
        fill_exchange_table(x);
    if (status != DLC_OK) {
        dlc_exchanger_close(x);
        return status;
    }
    *exchanger = x;
    return DLC_OK;
}

/* Stops the thread, cancelling what is in flight, and waits for its end. */
static void stop_exchange_thread(dlc_exchanger *x) {
    (void)pthread_mutex_lock(&x->lock);
    x->stop = 1;
    if (x->running || x->started > x->ended)
        dlc_comm_cancel(x->args.comm);
    (void)pthread_cond_signal(&x->work);
    (void)pthread_mutex_unlock(&x->lock);
    (void)pthread_join(x->thread, NULL);
}

/* No memory may be freed while a queue may use it, so both are drained first. */
static void close_stream_ordered(dlc_exchanger *x) {
    const dlc_device_ops *ops = x->args.device_ops;
    if (x->all_done) {
        drain_queue(x, x->side_queue);
        drain_queue(x, x->args.queue);
        ops->queues->event_close(x->args.device, x->all_done);
    }
    dlc_device_close_events(ops, x->args.device, x->args.buckets, x->reduced);
    if (x->side_queue)
        ops->queues->queue_close(x->args.device, x->side_queue);
}

void dlc_exchanger_close(dlc_exchanger *x) {
    if (!x)
        return;
    if (x->has_thread)
        stop_exchange_thread(x);
    close_stream_ordered(x);
    (void)pthread_cond_destroy(&x->done);
    (void)pthread_cond_destroy(&x->work);
    (void)pthread_mutex_destroy(&x->lock);
    dlc_device_free(x->args.device_ops, x->args.device, &x->next);
    dlc_free(x->detail);
    for (int i = 0; i < DLC_BUCKET_OPS; i++) {
        dlc_device_close_events(x->args.device_ops, x->args.device, x->args.buckets,
                                x->ready[i]);
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
        if (is_bucket_sharded(x, b))
            DLC_TRY(dlc_comm_all_gather(x->args.comm, arena + x->begin[b],
                                        x->begin[b + 1] - x->begin[b]));
    return DLC_OK;
}

int dlc_exchanger_is_stream_ordered(const dlc_exchanger *x) {
    return x->side_queue != NULL;
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
