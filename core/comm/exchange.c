/* The exchanger: a queue of buckets, and whoever has time sums the next one.
 *
 * One mutex guards the queue. `running` is set while somebody is in the
 * communicator, without the mutex; nobody else goes there then, so that the
 * communicator sees one thread at a time.
 */
#include "comm/exchange.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/queued.h"
#include "comm/team.h"

/* What can be done with a bucket. */
typedef enum act { SUM, SPREAD, STEP, WORKS } act;

typedef struct task {
    act work;
    int32_t bucket;
    const dlc_weight_step *steps; /* of STEP */
    int32_t count;
} task;

struct dlc_exchanger {
    dlc_exchange_args args;
    size_t *begin; /* own; buckets + 1 */
    size_t *own;   /* own; with shards: where this rank's part of each bucket begins,
                      then where it ends */
    dlc_exchange table;

    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t news; /* for the thread: work, or the end */
    pthread_cond_t done; /* for the train thread: a bucket, or an error */

    /* Below: guarded by the lock. */
    task *queue;             /* own; a ring of WORKS * buckets */
    uint64_t started, ended; /* since open */
    char *pending[WORKS];    /* own; a bucket is started and not yet through */
    int32_t spreading;       /* buckets whose weights are on their way */
    int running, stop;
    dlc_status failed;
    char *detail; /* own; of the thread that failed */
    dlc_exchange_stats stats;

    dlc_memory next;    /* newest first: the number of the bucket that rank 0 chose */
    dlc_queued *queued; /* own; NULL: the thread, or nobody, does it */
    dlc_event **given[WORKS]; /* own; with a queue: what it had to do then is done */
};

/* ---- Working --------------------------------------------------------------- */

/* The last bucket has the tail, which every rank reads. */
static int is_sharded(const dlc_exchanger *x, int32_t bucket) {
    return x->args.shards && bucket < x->args.buckets - 1;
}

static dlc_status check_bucket(const dlc_exchanger *x, int32_t bucket) {
    if (bucket < 0 || bucket >= x->table.buckets)
        return dlc_fail(DLC_ERR_INTERNAL, "there is no bucket %d among %d", bucket,
                        x->table.buckets);
    return DLC_OK;
}

static int has_work(const dlc_exchanger *x) {
    return x->started > x->ended && !x->running && x->failed == DLC_OK;
}

/* May the train thread, which waits, do it itself? Not where another rank chooses: it
 * may want a bucket that this thread has yet to start. */
static int may_help(const dlc_exchanger *x) {
    return has_work(x) && !x->args.newest_first;
}

static size_t ring(const dlc_exchanger *x) {
    return (size_t)WORKS * (size_t)x->args.buckets;
}

static dlc_status do_task(dlc_exchanger *x, const task *what) {
    const dlc_exchange_args *args = &x->args;
    size_t at = x->begin[what->bucket], count = x->begin[what->bucket + 1] - at;

    if (what->work == SPREAD)
        return dlc_comm_all_gather(args->comm, args->weights + at, count);
    if (what->work == STEP)
        return dlc_comm_update(args->comm, args->gradients + at, args->weights + at,
                               count, what->steps, what->count);
    if (is_sharded(x, what->bucket))
        return dlc_comm_reduce_scatter(args->comm, args->gradients + at, count);
    return dlc_comm_all_reduce(args->comm, args->gradients + at, count);
}

static void tell(const dlc_exchanger *x, const task *what) {
    static const char *const also[WORKS] = {"", " (weights)", " (and weights)"};
    char text[32];
    if (!x->args.watch)
        return;
    size_t bytes = (x->begin[what->bucket + 1] - x->begin[what->bucket]) *
                   sizeof(float);
    (void)snprintf(text, sizeof text, "bucket %d%s", what->bucket, also[what->work]);
    x->args.watch(x->args.watch_context, text, bytes);
}

/* Rank 0's choice is everybody's. Without the lock. */
static dlc_status agree_on_bucket(dlc_exchanger *x, int32_t *bucket) {
    const dlc_exchange_args *args = &x->args;
    if (x->table.rank == 0)
        DLC_TRY(args->device_ops->copy(args->device, NULL, x->next.base, bucket,
                                       sizeof *bucket));
    DLC_TRY(dlc_comm_broadcast(args->comm, 0, x->next.base, sizeof *bucket));
    return args->device_ops->copy(args->device, NULL, bucket, x->next.base,
                                  sizeof *bucket);
}

/* Has the queue, if there is one, come to where the bucket was started? */
static int is_filled(const dlc_exchanger *x, int32_t bucket) {
    int done = 1;
    if (x->given[SUM] && x->args.device_ops->event_done(
                             x->args.device, x->given[SUM][bucket], &done) != DLC_OK)
        return 1; /* whoever waits for it is told */
    return done;
}

/* Of the buckets that wait: the newest that is filled; the first if none is. With the
 * lock. */
static int32_t newest_filled(const dlc_exchanger *x) {
    int32_t first = 0;
    for (int32_t b = x->args.buckets - 1; b >= 0; b--) {
        if (!x->pending[SUM][b])
            continue;
        if (is_filled(x, b))
            return b;
        first = b;
    }
    return first;
}

/* Rank 0's newest bucket, which the next forward needs first, once it has been started
 * here, too. With the lock, which is given up meanwhile. */
static dlc_status choose_newest(dlc_exchanger *x, int32_t *bucket) {
    int32_t newest = newest_filled(x);
    (void)pthread_mutex_unlock(&x->lock);
    dlc_status status = agree_on_bucket(x, &newest);
    (void)pthread_mutex_lock(&x->lock);
    if (status == DLC_OK)
        status = check_bucket(x, newest);
    while (status == DLC_OK && !x->pending[SUM][newest] && !x->stop)
        (void)pthread_cond_wait(&x->news, &x->lock);
    if (status == DLC_OK && x->stop)
        status = dlc_fail(DLC_ERR_CANCELLED, "the exchange was stopped");
    if (status == DLC_OK)
        *bucket = newest;
    return status;
}

static dlc_status await_filled(dlc_exchanger *x, const task *what) {
    if (!x->given[what->work])
        return DLC_OK;
    return x->args.device_ops->event_sync(x->args.device,
                                          x->given[what->work][what->bucket]);
}

/* With a queue the train thread is elsewhere, but the device has nothing to do beside
 * this task once backward is through. With the lock. */
static int is_exposed(const dlc_exchanger *x, const task *what) {
    int32_t last = x->args.buckets - 1;
    return x->given[SUM] &&
           (what->work == SPREAD || (x->pending[SUM][last] && is_filled(x, last)));
}

/* With the lock, which is given up meanwhile. */
static void run_next(dlc_exchanger *x) {
    task what = x->queue[x->ended % ring(x)];
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
        tell(x, &what);
        status = do_task(x, &what);
    }
    double seconds = dlc_since(since);
    char *detail = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    if (x->args.watch && status == DLC_OK)
        x->args.watch(x->args.watch_context, NULL, 0);
    (void)pthread_mutex_lock(&x->lock);

    x->running = 0;
    x->ended++;
    x->pending[what.work][what.bucket] = 0;
    x->spreading -= what.work != SUM;
    if (what.work != SPREAD)
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

    dlc_thread_take_short_turns();
    (void)pthread_mutex_lock(&x->lock);
    while (!x->stop) {
        if (has_work(x))
            run_next(x);
        else
            (void)pthread_cond_wait(&x->news, &x->lock);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* ---- The table ------------------------------------------------------------- */

static dlc_status failure(const dlc_exchanger *x) {
    return dlc_fail(x->failed, "%s", x->detail ? x->detail : "the exchange failed");
}

/* The thread waits until the queue has come here. */
static dlc_status mark_given(const dlc_exchanger *x, act work, int32_t bucket) {
    const dlc_exchange_args *args = &x->args;
    if (!x->given[work])
        return DLC_OK;
    return args->device_ops->event_record(args->device, args->queue,
                                          x->given[work][bucket]);
}

/* With the lock. */
static dlc_status add_task(dlc_exchanger *x, const task *what) {
    if (x->failed != DLC_OK)
        return failure(x);
    if (x->pending[what->work][what->bucket])
        return dlc_fail(DLC_ERR_INTERNAL, "bucket %d was started twice without a wait",
                        what->bucket);
    DLC_TRY(mark_given(x, what->work, what->bucket));
    x->queue[x->started % ring(x)] = *what;
    x->started++;
    x->pending[what->work][what->bucket] = 1;
    x->spreading += what->work != SUM;
    (void)pthread_cond_signal(&x->news);
    return DLC_OK;
}

static dlc_status enqueue(dlc_exchanger *x, const task *what) {
    if (x->table.ranks == 1)
        return DLC_OK;
    (void)pthread_mutex_lock(&x->lock);
    dlc_status status = add_task(x, what);
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

static dlc_status exchange_start(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return enqueue(x, &(task){.work = SUM, .bucket = bucket});
}

static dlc_status exchange_spread(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return is_sharded(x, bucket) ? enqueue(x, &(task){.work = SPREAD, .bucket = bucket})
                                 : DLC_OK;
}

static dlc_status exchange_step(void *context, int32_t bucket,
                                const dlc_weight_step *steps, int32_t count) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    if (!is_sharded(x, bucket))
        return dlc_fail(DLC_ERR_INTERNAL, "all ranks update bucket %d", bucket);
    return enqueue(x, &(task){STEP, bucket, steps, count});
}

static int is_summed(const dlc_exchanger *x, int32_t bucket) {
    return !x->pending[SUM][bucket];
}

static int is_settled(const dlc_exchanger *x, int32_t bucket) {
    (void)bucket;
    return x->spreading == 0;
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
                (void)pthread_cond_wait(&x->done, &x->lock);
        }
        x->stats.waited += x->given[SUM] ? 0 : dlc_since(since);
    }
    dlc_status status = x->failed == DLC_OK ? DLC_OK : failure(x);
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

static dlc_status exchange_wait(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return x->table.ranks == 1 ? DLC_OK : wait_until(x, is_summed, bucket);
}

static dlc_status exchange_settle(void *context) {
    dlc_exchanger *x = context;
    return x->table.ranks == 1 ? DLC_OK : wait_until(x, is_settled, 0);
}

/* ---- The table, where all is work on a queue --------------------------------- */

static dlc_status queue_task(dlc_exchanger *x, act work, int32_t bucket) {
    size_t at = x->begin[bucket], count = x->begin[bucket + 1] - at;
    if (work == SPREAD)
        return dlc_queued_start(x->queued, bucket, dlc_comm_queue_all_gather,
                                x->args.weights + at, count);
    x->stats.bytes += count * sizeof(float);
    return dlc_queued_start(x->queued, bucket,
                            is_sharded(x, bucket) ? dlc_comm_queue_reduce_scatter
                                                  : dlc_comm_queue_all_reduce,
                            x->args.gradients + at, count);
}

static dlc_status queued_start(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return queue_task(x, SUM, bucket);
}

static dlc_status queued_spread(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return is_sharded(x, bucket) ? queue_task(x, SPREAD, bucket) : DLC_OK;
}

static dlc_status queued_wait(void *context, int32_t bucket) {
    dlc_exchanger *x = context;
    DLC_TRY(check_bucket(x, bucket));
    return dlc_queued_wait(x->queued, bucket);
}

static dlc_status queued_settle(void *context) {
    dlc_exchanger *x = context;
    return dlc_queued_wait_all(x->queued);
}

/* ---- Opening and closing --------------------------------------------------- */

static dlc_status start_thread(dlc_exchanger *x) {
    DLC_TRY(dlc_thread_start(&x->thread, "dlc-exchange", thread_main, x));
    x->has_thread = 1;
    return DLC_OK;
}

static dlc_status make_tables(dlc_exchanger *x) {
    size_t count = (size_t)x->args.buckets;
    x->begin = dlc_alloc(count + 1, sizeof *x->begin);
    x->own = dlc_alloc(2 * count, sizeof *x->own);
    x->queue = dlc_alloc(ring(x), sizeof *x->queue);
    for (int i = 0; i < WORKS; i++)
        x->pending[i] = dlc_alloc(count, sizeof *x->pending[i]);
    if (!x->begin || !x->own || !x->queue || !x->pending[SUM] || !x->pending[SPREAD] ||
        !x->pending[STEP])
        return DLC_ERR_NOMEM;
    memcpy(x->begin, x->args.begin, (count + 1) * sizeof *x->begin);
    for (size_t b = 0; b < count; b++) {
        size_t begin = 0, end = x->begin[b + 1] - x->begin[b];
        if (is_sharded(x, (int32_t)b))
            dlc_comm_shard(x->args.comm, end, &begin, &end);
        x->own[b] = x->begin[b] + begin;
        x->own[count + b] = x->begin[b] + end;
    }
    return DLC_OK;
}

static void fill_table(dlc_exchanger *x) {
    x->table = (dlc_exchange){.size = sizeof x->table,
                              .context = x,
                              .rank = dlc_comm_rank(x->args.comm),
                              .ranks = dlc_comm_ranks(x->args.comm),
                              .buckets = x->args.buckets,
                              .bucket_begin = x->begin,
                              .start = x->queued ? queued_start : exchange_start,
                              .wait = x->queued ? queued_wait : exchange_wait};
    if (!x->args.shards)
        return;
    x->table.own_begin = x->own;
    x->table.own_end = x->own + x->args.buckets;
    x->table.spread = x->queued ? queued_spread : exchange_spread;
    x->table.settle = x->queued ? queued_settle : exchange_settle;
    if (!x->args.queue && dlc_comm_can_update(x->args.comm))
        x->table.step = exchange_step;
}

static dlc_status open_queued(dlc_exchanger *x) {
    dlc_queued_args args = {.comm = x->args.comm,
                            .device_ops = x->args.device_ops,
                            .device = x->args.device,
                            .queue = x->args.queue,
                            .buckets = x->args.buckets};
    return dlc_queued_open(&args, &x->queued);
}

static dlc_status open_events(dlc_exchanger *x, act work) {
    const dlc_exchange_args *args = &x->args;
    x->given[work] = dlc_alloc((size_t)args->buckets, sizeof(dlc_event *));
    if (!x->given[work])
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < args->buckets; b++)
        DLC_TRY(args->device_ops->event_open(args->device, &x->given[work][b]));
    return DLC_OK;
}

static void close_events(dlc_exchanger *x, act work) {
    const dlc_exchange_args *args = &x->args;
    for (int32_t b = 0; x->given[work] && b < args->buckets; b++)
        if (x->given[work][b])
            args->device_ops->event_close(args->device, x->given[work][b]);
    dlc_free(x->given[work]);
}

/* Whoever sums: the queue of a device, or a thread that waits for its events. */
static dlc_status open_worker(dlc_exchanger *x) {
    if (x->args.queue && dlc_comm_can_queue(x->args.comm))
        return open_queued(x);
    for (int i = 0; x->args.queue && i < WORKS; i++)
        DLC_TRY(open_events(x, (act)i));
    return start_thread(x);
}

dlc_status dlc_exchanger_open(const dlc_exchange_args *args,
                              dlc_exchanger **exchanger) {
    dlc_exchanger *x = dlc_alloc(1, sizeof *x);
    if (!x)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&x->lock, NULL);
    (void)pthread_cond_init(&x->news, NULL);
    (void)pthread_cond_init(&x->done, NULL);
    x->args = *args;
    x->args.shards = args->shards && dlc_comm_has_shards(args->comm);
    x->next.size = sizeof x->next;
    dlc_status status = make_tables(x);
    if (status == DLC_OK && args->newest_first)
        status = args->device_ops->alloc(args->device, sizeof(int32_t), 0, &x->next);
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
    if (x->has_thread) {
        (void)pthread_mutex_lock(&x->lock);
        x->stop = 1;
        if (x->running || x->started > x->ended)
            dlc_comm_cancel(x->args.comm);
        (void)pthread_cond_signal(&x->news);
        (void)pthread_mutex_unlock(&x->lock);
        (void)pthread_join(x->thread, NULL);
    }
    (void)pthread_cond_destroy(&x->done);
    (void)pthread_cond_destroy(&x->news);
    (void)pthread_mutex_destroy(&x->lock);
    if (x->next.base)
        x->args.device_ops->free(x->args.device, &x->next);
    dlc_queued_close(x->queued);
    dlc_free(x->detail);
    for (int i = 0; i < WORKS; i++) {
        close_events(x, (act)i);
        dlc_free(x->pending[i]);
    }
    dlc_free(x->queue);
    dlc_free(x->own);
    dlc_free(x->begin);
    dlc_free(x);
}

const dlc_exchange *dlc_exchanger_table(const dlc_exchanger *x) {
    return &x->table;
}

dlc_status dlc_exchanger_gather(dlc_exchanger *x, float *arena) {
    for (int32_t b = 0; b < x->args.buckets; b++)
        if (is_sharded(x, b))
            DLC_TRY(dlc_comm_all_gather(x->args.comm, arena + x->begin[b],
                                        x->begin[b + 1] - x->begin[b]));
    return DLC_OK;
}

int dlc_exchanger_is_queued(const dlc_exchanger *x) {
    return x->queued != NULL;
}

void dlc_exchanger_count(dlc_exchanger *x) {
    if (x->table.ranks > 1)
        x->stats.bytes += x->begin[x->args.buckets] * sizeof(float);
}

dlc_exchange_stats dlc_exchanger_stats(dlc_exchanger *x) {
    (void)pthread_mutex_lock(&x->lock);
    dlc_exchange_stats stats = x->stats;
    (void)pthread_mutex_unlock(&x->lock);
    return stats;
}

double dlc_exchange_hidden(const dlc_exchange_stats *stats) {
    if (stats->busy <= 0.0 || stats->waited >= stats->busy)
        return 0.0;
    return 1.0 - stats->waited / stats->busy;
}
