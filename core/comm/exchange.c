/* The exchanger: a queue of buckets, and whoever has time sums the next one.
 *
 * One mutex guards the queue. `running` is set while somebody is in the
 * communicator, without the mutex; nobody else goes there then, so that the
 * communicator sees one thread at a time.
 */
#include "comm/exchange.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

struct dlc_exchanger {
    dlc_comm *comm;
    float *gradients;
    size_t *begin; /* own; buckets + 1 */
    dlc_exchange table;

    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t news; /* for the thread: work, or the end */
    pthread_cond_t done; /* for the train thread: a bucket, or an error */

    /* Below: guarded by the lock. */
    int32_t *queue;          /* own; buckets started, a ring of `buckets` */
    uint64_t started, ended; /* since open */
    char *pending;           /* own; a bucket is started and not yet summed */
    int running, stop;
    dlc_status failed;
    char *detail; /* own; of the thread that failed */
    dlc_exchange_stats stats;
};

dlc_status dlc_exchange_plan(const size_t *segment_end, size_t segments,
                             size_t target_bytes, size_t **begin, int32_t *buckets) {
    size_t *cut = dlc_alloc(segments + 1, sizeof *cut);
    size_t count = 0;

    if (!cut)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < segments; i++) {
        if (segment_end[i] < cut[count] || count >= INT32_MAX) {
            dlc_free(cut);
            return dlc_fail(DLC_ERR_INTERNAL, "segment %zu ends before it begins", i);
        }
        int last = i + 1 == segments;
        size_t bytes = (segment_end[i] - cut[count]) * sizeof(float);
        if (bytes >= target_bytes || last) {
            cut[count + 1] = segment_end[i];
            count++;
        }
    }
    *begin = cut;
    *buckets = (int32_t)count;
    return DLC_OK;
}

/* ---- Summing --------------------------------------------------------------- */

static int has_work(const dlc_exchanger *x) {
    return x->started > x->ended && !x->running && x->failed == DLC_OK;
}

/* Sums the bucket at the head of the queue. With the lock, which is given up
 * meanwhile. */
static void run_next(dlc_exchanger *x) {
    int32_t bucket = x->queue[x->ended % (uint64_t)x->table.buckets];
    size_t at = x->begin[bucket], count = x->begin[bucket + 1] - at;

    x->running = 1;
    (void)pthread_mutex_unlock(&x->lock);
    uint64_t since = dlc_now_ns();
    dlc_status status = dlc_comm_all_reduce(x->comm, x->gradients + at, count);
    double seconds = dlc_since(since);
    char *detail = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    (void)pthread_mutex_lock(&x->lock);

    x->running = 0;
    x->ended++;
    x->pending[bucket] = 0;
    x->stats.bytes += count * sizeof(float);
    x->stats.busy += seconds;
    if (status != DLC_OK) {
        x->failed = status;
        x->detail = detail;
    }
    (void)pthread_cond_broadcast(&x->done);
}

static void *thread_main(void *context) {
    dlc_exchanger *x = context;

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

static dlc_status check_bucket(const dlc_exchanger *x, int32_t bucket) {
    if (bucket < 0 || bucket >= x->table.buckets)
        return dlc_fail(DLC_ERR_INTERNAL, "there is no bucket %d among %d", bucket,
                        x->table.buckets);
    return DLC_OK;
}

static dlc_status exchange_start(void *context, int32_t bucket) {
    dlc_exchanger *x = context;

    DLC_TRY(check_bucket(x, bucket));
    if (x->table.ranks == 1)
        return DLC_OK;
    (void)pthread_mutex_lock(&x->lock);
    dlc_status status = DLC_OK;
    if (x->failed != DLC_OK) {
        status = failure(x);
    } else if (x->pending[bucket]) {
        status = dlc_fail(DLC_ERR_INTERNAL,
                          "bucket %d was started twice without a wait", bucket);
    } else {
        x->queue[x->started % (uint64_t)x->table.buckets] = bucket;
        x->started++;
        x->pending[bucket] = 1;
        (void)pthread_cond_signal(&x->news);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

static dlc_status exchange_wait(void *context, int32_t bucket) {
    dlc_exchanger *x = context;

    DLC_TRY(check_bucket(x, bucket));
    if (x->table.ranks == 1)
        return DLC_OK;
    (void)pthread_mutex_lock(&x->lock);
    if (x->pending[bucket]) {
        uint64_t since = dlc_now_ns();
        while (x->pending[bucket] && x->failed == DLC_OK) {
            if (has_work(x))
                run_next(x);
            else
                (void)pthread_cond_wait(&x->done, &x->lock);
        }
        x->stats.waited += dlc_since(since);
    }
    dlc_status status = x->failed == DLC_OK ? DLC_OK : failure(x);
    (void)pthread_mutex_unlock(&x->lock);
    return status;
}

/* ---- Opening and closing --------------------------------------------------- */

/* The thread takes no signals: they are the train thread's. */
static dlc_status start_thread(dlc_exchanger *x) {
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&x->thread, NULL, thread_main, x);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return dlc_fail(DLC_ERR_NOMEM, "cannot start the exchange thread: %s",
                        strerror(error));
    x->has_thread = 1;
    (void)pthread_setname_np(x->thread, "dlc-exchange");
    return DLC_OK;
}

dlc_status dlc_exchanger_open(dlc_comm *comm, float *gradients, const size_t *begin,
                              int32_t buckets, dlc_exchanger **exchanger) {
    size_t count = (size_t)buckets;
    dlc_exchanger *x = dlc_alloc(1, sizeof *x);
    if (!x)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&x->lock, NULL);
    (void)pthread_cond_init(&x->news, NULL);
    (void)pthread_cond_init(&x->done, NULL);
    x->comm = comm;
    x->gradients = gradients;
    x->begin = dlc_alloc(count + 1, sizeof *x->begin);
    x->queue = dlc_alloc(count, sizeof *x->queue);
    x->pending = dlc_alloc(count, sizeof *x->pending);
    dlc_status status = x->begin && x->queue && x->pending ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        memcpy(x->begin, begin, (count + 1) * sizeof *begin);
        x->table = (dlc_exchange){.size = sizeof x->table,
                                  .context = x,
                                  .rank = dlc_comm_rank(comm),
                                  .ranks = dlc_comm_ranks(comm),
                                  .buckets = buckets,
                                  .bucket_begin = x->begin,
                                  .start = exchange_start,
                                  .wait = exchange_wait};
        if (x->table.ranks > 1)
            status = start_thread(x);
    }
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
            dlc_comm_cancel(x->comm);
        (void)pthread_cond_signal(&x->news);
        (void)pthread_mutex_unlock(&x->lock);
        (void)pthread_join(x->thread, NULL);
    }
    (void)pthread_cond_destroy(&x->done);
    (void)pthread_cond_destroy(&x->news);
    (void)pthread_mutex_destroy(&x->lock);
    dlc_free(x->detail);
    dlc_free(x->pending);
    dlc_free(x->queue);
    dlc_free(x->begin);
    dlc_free(x);
}

const dlc_exchange *dlc_exchanger_table(const dlc_exchanger *x) {
    return &x->table;
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
