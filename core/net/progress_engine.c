/* The progress engine. Submitted transfers wait in `queue`; the thread posts them on
 * the p2p channel, which only it uses. A handle is the number of transfers submitted so
 * far. Transfers complete in any order, so what counts is the oldest that is not
 * complete.
 */
#include "net/progress_engine.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/thread.h"

/* How long a wait may take if the channel has no wakeup call. */
#define WAIT_S 0.05

struct dlc_progress_engine {
    const dlc_p2p_channel *p2p;
    int32_t most;

    /* Used by the thread alone. */
    dlc_request **request; /* own; NULL: a free place */
    uint64_t *number;      /* own; of the transfer in each place */
    int32_t in_flight;

    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the thread: new transfers, or the end */
    pthread_cond_t done;    /* for a caller that waits */

    /* Guarded by the lock. */
    dlc_transfer *queue;        /* own; a ring of `most` */
    uint64_t submitted, posted; /* since open */
    uint64_t completed;         /* all transfers before this one are */
    int stop;
    dlc_status failed;
    char *detail; /* own */
};

/* ---- The thread ------------------------------------------------------------------ */

static dlc_status post(const dlc_progress_engine *engine, const dlc_transfer *transfer,
                       dlc_request **request) {
    const dlc_p2p_channel *p2p = engine->p2p;
    return transfer->is_sent ? p2p->send(p2p->context, transfer->peer, transfer->tag,
                                         transfer->buffer, transfer->bytes, request)
                             : p2p->recv(p2p->context, transfer->peer, transfer->tag,
                                         transfer->buffer, transfer->bytes, request);
}

static int32_t free_place(const dlc_progress_engine *engine) {
    int32_t i = 0;
    while (i < engine->most && engine->request[i])
        i++;
    return i;
}

/* Posts what was submitted. Called with the lock, which is released while it posts. */
static dlc_status post_all(dlc_progress_engine *engine) {
    dlc_status status = DLC_OK;
    while (status == DLC_OK && engine->posted < engine->submitted &&
           engine->in_flight < engine->most) {
        dlc_transfer transfer = engine->queue[engine->posted % (uint64_t)engine->most];
        int32_t at = free_place(engine);
        engine->number[at] = engine->posted++;
        (void)pthread_mutex_unlock(&engine->lock);
        status = post(engine, &transfer, &engine->request[at]);
        (void)pthread_mutex_lock(&engine->lock);
        engine->in_flight += status == DLC_OK;
    }
    return status;
}

/* Updates `completed`. Called with the lock. */
static void note_completed(dlc_progress_engine *engine) {
    uint64_t oldest = engine->posted;
    for (int32_t i = 0; i < engine->most; i++)
        if (engine->request[i] && engine->number[i] < oldest)
            oldest = engine->number[i];
    if (oldest == engine->completed)
        return;
    engine->completed = oldest;
    (void)pthread_cond_broadcast(&engine->done);
}

/* Waits until a transfer is complete, or until it is woken. Called with the lock, which
 * is released meanwhile. */
static dlc_status progress(dlc_progress_engine *engine) {
    const dlc_p2p_channel *p2p = engine->p2p;
    int32_t which = -1;
    (void)pthread_mutex_unlock(&engine->lock);
    dlc_status status = p2p->wait_any(p2p->context, engine->request, engine->most,
                                      WAIT_S, &which);
    (void)pthread_mutex_lock(&engine->lock);
    if (status == DLC_OK && which >= 0) {
        engine->request[which] = NULL;
        engine->in_flight--;
        note_completed(engine);
    }
    return status;
}

static void *thread_main(void *context) {
    dlc_progress_engine *engine = context;
    dlc_status status = DLC_OK;

    dlc_thread_request_short_slices();
    (void)pthread_mutex_lock(&engine->lock);
    while (!engine->stop && status == DLC_OK) {
        status = post_all(engine);
        if (status == DLC_OK && engine->in_flight > 0)
            status = progress(engine);
        else if (status == DLC_OK && !engine->stop)
            (void)pthread_cond_wait(&engine->changed, &engine->lock);
    }
    if (status != DLC_OK) {
        engine->failed = status;
        engine->detail = dlc_strdup(dlc_detail());
        (void)pthread_cond_broadcast(&engine->done);
    }
    (void)pthread_mutex_unlock(&engine->lock);
    return NULL;
}

/* ---- Opening and closing --------------------------------------------------------- */

static dlc_status start_thread(dlc_progress_engine *engine) {
    DLC_TRY(dlc_thread_start(&engine->thread, "dlc-progress", thread_main, engine));
    engine->has_thread = 1;
    return DLC_OK;
}

dlc_status dlc_progress_engine_open(const dlc_p2p_channel *p2p, int32_t most,
                                    dlc_progress_engine **engine) {
    dlc_progress_engine *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->changed, NULL);
    (void)pthread_cond_init(&made->done, NULL);
    made->p2p = p2p;
    made->most = most;
    made->request = dlc_alloc((size_t)most, sizeof(dlc_request *));
    made->number = dlc_alloc((size_t)most, sizeof *made->number);
    made->queue = dlc_alloc((size_t)most, sizeof *made->queue);
    dlc_status status = made->request && made->number && made->queue
                            ? start_thread(made)
                            : DLC_ERR_NOMEM;
    if (status != DLC_OK) {
        dlc_progress_engine_close(made);
        return status;
    }
    *engine = made;
    return DLC_OK;
}

static void wake_thread(const dlc_progress_engine *engine) {
    if (engine->p2p->wakeup)
        engine->p2p->wakeup(engine->p2p->context);
}

void dlc_progress_engine_close(dlc_progress_engine *engine) {
    if (!engine)
        return;
    if (engine->has_thread) {
        (void)pthread_mutex_lock(&engine->lock);
        engine->stop = 1;
        (void)pthread_cond_signal(&engine->changed);
        (void)pthread_mutex_unlock(&engine->lock);
        wake_thread(engine);
        (void)pthread_join(engine->thread, NULL);
    }
    (void)pthread_cond_destroy(&engine->done);
    (void)pthread_cond_destroy(&engine->changed);
    (void)pthread_mutex_destroy(&engine->lock);
    dlc_free(engine->detail);
    dlc_free(engine->queue);
    dlc_free(engine->number);
    dlc_free(engine->request);
    dlc_free(engine);
}

/* ---- The train thread ------------------------------------------------------------ */

/* The status of the thread. Called with the lock. */
static dlc_status failure(const dlc_progress_engine *engine) {
    return engine->failed == DLC_OK
               ? DLC_OK
               : dlc_fail(engine->failed, "%s", engine->detail ? engine->detail : "");
}

dlc_status dlc_progress_engine_submit(dlc_progress_engine *engine,
                                      const dlc_transfer *transfer, int32_t count,
                                      uint64_t *handle) {
    (void)pthread_mutex_lock(&engine->lock);
    dlc_status status = failure(engine);
    if (status == DLC_OK && engine->submitted + (uint64_t)count - engine->completed >
                                (uint64_t)engine->most)
        status = dlc_fail(DLC_ERR_INTERNAL, "more transfers in flight than planned");
    for (int32_t i = 0; status == DLC_OK && i < count; i++)
        engine->queue[engine->submitted++ % (uint64_t)engine->most] = transfer[i];
    if (status == DLC_OK)
        *handle = engine->submitted;
    (void)pthread_cond_signal(&engine->changed);
    (void)pthread_mutex_unlock(&engine->lock);
    wake_thread(engine);
    return status;
}

dlc_status dlc_progress_engine_wait(dlc_progress_engine *engine, uint64_t handle) {
    (void)pthread_mutex_lock(&engine->lock);
    while (engine->completed < handle && engine->failed == DLC_OK)
        (void)pthread_cond_wait(&engine->done, &engine->lock);
    dlc_status status = engine->completed < handle ? failure(engine) : DLC_OK;
    (void)pthread_mutex_unlock(&engine->lock);
    return status;
}
