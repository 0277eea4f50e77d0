/* The progress engine. A handle is the number of transfers submitted so far. Transfers
 * complete in any order, so what counts is the oldest that is not complete: transfer n
 * has place n % places of two rings from its submission until all up to n are complete.
 * Whoever drives the transfers, the engine's thread or else its caller, posts them and
 * is the only one to use the channel.
 */
#include "comm/progress_engine.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/p2p_channel.h"

/* Seconds that one wait may take if the channel has no wakeup call. */
#define WAIT_S 0.05
/* Places at first; a thread's engine has as many as may be in flight. */
enum { PLACES = 16 };

struct dlc_progress_engine {
    const dlc_p2p_channel *p2p;
    dlc_p2p *own; /* the channel, if the engine has opened it */
    int32_t places;
    dlc_request **request; /* own; a ring; NULL: not posted yet, or complete. Used by
                              the driver alone. */

    int has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the thread: new transfers, or the end */
    pthread_cond_t done;    /* for a caller that waits */
    double waited;          /* seconds; the caller's */

    /* Guarded by the lock. */
    dlc_transfer *transfer;                /* own; a ring */
    uint64_t submitted, posted, completed; /* since open; all before `completed` are */
    int stop;
    dlc_status failed;
    char *detail; /* own */
};

/* ---- The driver ------------------------------------------------------------------ */

static int32_t ring_place(const dlc_progress_engine *engine, uint64_t number) {
    return (int32_t)(number % (uint64_t)engine->places);
}

static dlc_status post_transfer(const dlc_progress_engine *engine,
                                const dlc_transfer *transfer, dlc_request **request) {
    const dlc_p2p_channel *p2p = engine->p2p;
    return transfer->from ? p2p->send(p2p->context, transfer->peer, transfer->tag,
                                      transfer->from, transfer->bytes, request)
                          : p2p->recv(p2p->context, transfer->peer, transfer->tag,
                                      transfer->to, transfer->bytes, request);
}

/* Posts what was submitted. Called with the lock, which is released while it posts. */
static dlc_status post_all(dlc_progress_engine *engine) {
    dlc_status status = DLC_OK;
    while (status == DLC_OK && engine->posted < engine->submitted) {
        int32_t at = ring_place(engine, engine->posted);
        dlc_transfer transfer = engine->transfer[at];
        (void)pthread_mutex_unlock(&engine->lock);
        status = post_transfer(engine, &transfer, &engine->request[at]);
        (void)pthread_mutex_lock(&engine->lock);
        engine->posted += status == DLC_OK;
    }
    return status;
}

/* Called with the lock. */
static void note_complete(dlc_progress_engine *engine, int32_t at) {
    engine->request[at] = NULL;
    if (engine->transfer[at].pending)
        --*engine->transfer[at].pending;
    while (engine->completed < engine->posted &&
           !engine->request[ring_place(engine, engine->completed)])
        engine->completed++;
    (void)pthread_cond_broadcast(&engine->done);
}

/* Waits until a transfer is complete, or until it is woken. Called with the lock, which
 * is released meanwhile. */
static dlc_status make_progress(dlc_progress_engine *engine) {
    const dlc_p2p_channel *p2p = engine->p2p;
    int32_t which = -1;
    if (engine->own) /* the oldest transfer is the one that may be lost */
        dlc_p2p_await(engine->own,
                      engine->transfer[ring_place(engine, engine->completed)].peer);
    (void)pthread_mutex_unlock(&engine->lock);
    dlc_status status = p2p->wait_any(p2p->context, engine->request, engine->places,
                                      WAIT_S, &which);
    (void)pthread_mutex_lock(&engine->lock);
    if (status == DLC_OK && which >= 0)
        note_complete(engine, which);
    return status;
}

static void *progress_main(void *context) {
    dlc_progress_engine *engine = context;
    dlc_status status = DLC_OK;

    dlc_thread_request_short_slices();
    (void)pthread_mutex_lock(&engine->lock);
    while (!engine->stop && status == DLC_OK) {
        status = post_all(engine);
        if (status == DLC_OK && engine->completed < engine->posted)
            status = make_progress(engine);
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

/* Moves both rings to more places. */
static dlc_status resize(dlc_progress_engine *engine, int32_t places) {
    size_t more = (size_t)places;
    dlc_transfer *transfer = dlc_alloc(more, sizeof *transfer);
    dlc_request **request = dlc_alloc(more, sizeof(dlc_request *));
    if (!transfer || !request) {
        dlc_free(request);
        dlc_free(transfer);
        return DLC_ERR_NOMEM;
    }
    for (uint64_t n = engine->completed; n < engine->submitted; n++) {
        transfer[n % more] = engine->transfer[ring_place(engine, n)];
        request[n % more] = engine->request[ring_place(engine, n)];
    }
    dlc_free(engine->transfer);
    dlc_free(engine->request);
    engine->transfer = transfer;
    engine->request = request;
    engine->places = places;
    return DLC_OK;
}

static dlc_status start_thread(dlc_progress_engine *engine) {
    DLC_TRY(dlc_thread_start(&engine->thread, "dlc-progress", progress_main, engine));
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
    dlc_status status = resize(made, most > 0 ? most : PLACES);
    if (status == DLC_OK && most > 0)
        status = start_thread(made);
    if (status != DLC_OK) {
        dlc_progress_engine_close(made);
        return status;
    }
    *engine = made;
    return DLC_OK;
}

dlc_status dlc_progress_engine_connect(const dlc_comm_args *args, int32_t most,
                                       dlc_progress_engine **engine) {
    dlc_p2p *p2p = NULL;
    dlc_progress_engine *made = NULL;
    DLC_TRY(dlc_p2p_open(args, &p2p));
    dlc_status status = dlc_progress_engine_open(dlc_p2p_table(p2p), most, &made);
    if (status != DLC_OK) {
        dlc_p2p_close(p2p);
        return status;
    }
    made->own = p2p;
    *engine = made;
    return DLC_OK;
}

static void wake_thread(const dlc_progress_engine *engine) {
    if (engine->has_thread && engine->p2p->wakeup)
        engine->p2p->wakeup(engine->p2p->context);
}

static void stop_thread(dlc_progress_engine *engine) {
    (void)pthread_mutex_lock(&engine->lock);
    engine->stop = 1;
    (void)pthread_cond_signal(&engine->changed);
    (void)pthread_mutex_unlock(&engine->lock);
    wake_thread(engine);
    (void)pthread_join(engine->thread, NULL);
}

void dlc_progress_engine_close(dlc_progress_engine *engine) {
    if (!engine)
        return;
    dlc_p2p_cancel(engine->own);
    if (engine->has_thread)
        stop_thread(engine);
    dlc_p2p_close(engine->own);
    (void)pthread_cond_destroy(&engine->done);
    (void)pthread_cond_destroy(&engine->changed);
    (void)pthread_mutex_destroy(&engine->lock);
    dlc_free(engine->detail);
    dlc_free(engine->transfer);
    dlc_free(engine->request);
    dlc_free(engine);
}

/* ---- The caller ------------------------------------------------------------------ */

/* The status of the thread. Called with the lock. */
static dlc_status thread_failure(const dlc_progress_engine *engine) {
    return engine->failed == DLC_OK
               ? DLC_OK
               : dlc_fail(engine->failed, "%s", engine->detail ? engine->detail : "");
}

/* Makes room for more transfers; a thread may be using the rings. */
static dlc_status make_places(dlc_progress_engine *engine, int32_t count) {
    uint64_t needed = engine->submitted + (uint64_t)count - engine->completed;
    if (needed <= (uint64_t)engine->places)
        return DLC_OK;
    if (engine->has_thread || needed > INT32_MAX / 2)
        return dlc_fail(DLC_ERR_INTERNAL, "more transfers in flight than planned");
    return resize(engine, 2 * (int32_t)needed);
}

dlc_status dlc_progress_engine_submit(dlc_progress_engine *engine,
                                      const dlc_transfer *transfer, int32_t count,
                                      uint64_t *handle) {
    (void)pthread_mutex_lock(&engine->lock);
    dlc_status status = thread_failure(engine);
    if (status == DLC_OK)
        status = make_places(engine, count);
    for (int32_t i = 0; status == DLC_OK && i < count; i++) {
        engine->transfer[ring_place(engine, engine->submitted++)] = transfer[i];
        if (transfer[i].pending)
            ++*transfer[i].pending;
    }
    if (status == DLC_OK && handle)
        *handle = engine->submitted;
    if (status == DLC_OK && !engine->has_thread)
        status = post_all(engine);
    (void)pthread_cond_signal(&engine->changed);
    (void)pthread_mutex_unlock(&engine->lock);
    wake_thread(engine);
    return status;
}

/* Waits for the thread, or makes progress. Called with the lock. */
static dlc_status wait_once(dlc_progress_engine *engine) {
    dlc_status status = DLC_OK;
    uint64_t began = dlc_now_ns();
    if (!engine->has_thread)
        status = make_progress(engine);
    else if ((status = thread_failure(engine)) == DLC_OK)
        dlc_thread_wait(&engine->done, &engine->lock, engine->p2p->check,
                        engine->p2p->context);
    engine->waited += dlc_since(began);
    return status;
}

double dlc_progress_engine_waited(const dlc_progress_engine *engine) {
    return engine ? engine->waited : 0;
}

dlc_status dlc_progress_engine_wait(dlc_progress_engine *engine, uint64_t handle) {
    dlc_status status = DLC_OK;
    (void)pthread_mutex_lock(&engine->lock);
    while (status == DLC_OK && engine->completed < handle)
        status = wait_once(engine);
    (void)pthread_mutex_unlock(&engine->lock);
    return status;
}

dlc_status dlc_progress_engine_drain(dlc_progress_engine *engine) {
    return dlc_progress_engine_wait(engine, engine->submitted);
}

dlc_status dlc_progress_engine_poll(dlc_progress_engine *engine) {
    const dlc_p2p_channel *p2p = engine->p2p;
    for (uint64_t n = engine->completed; n < engine->posted; n++) {
        int32_t at = ring_place(engine, n);
        int done = 0;
        if (engine->request[at])
            DLC_TRY(p2p->test(p2p->context, engine->request[at], &done));
        if (done)
            note_complete(engine, at);
    }
    return DLC_OK;
}

dlc_status dlc_progress_engine_wait_any(dlc_progress_engine *engine) {
    const dlc_p2p_channel *p2p = engine->p2p;
    DLC_TRY(p2p->check(p2p->context));
    if (engine->completed == engine->submitted)
        return dlc_fail(DLC_ERR_INTERNAL, "no transfer is in flight to wait for");
    (void)pthread_mutex_lock(&engine->lock);
    dlc_status status = wait_once(engine);
    (void)pthread_mutex_unlock(&engine->lock);
    return status;
}

/* ---- An all-gather --------------------------------------------------------------- */

static int32_t gather_member(const dlc_gather_group *group, int32_t index) {
    int32_t stride = group->stride ? group->stride : 1;
    return group->first + index % group->ranks * stride;
}

dlc_status dlc_gather_blocks(const dlc_gather_group *group, void *blocks,
                             size_t bytes) {
    int32_t ranks = group->ranks, me = group->rank;
    for (int32_t have = 1; have < ranks; have *= 2) {
        int32_t more = have < ranks - have ? have : ranks - have;
        size_t length = (size_t)more * bytes;
        const dlc_transfer transfer[] = {
            {.peer = gather_member(group, me + have),
             .tag = dlc_tag_of(group->tag, 0),
             .to = (char *)blocks + (size_t)have * bytes,
             .bytes = length,
             .pending = group->pending},
            {.peer = gather_member(group, me - have + ranks),
             .tag = dlc_tag_of(group->tag, 0),
             .from = blocks,
             .bytes = length,
             .pending = group->pending}};
        DLC_TRY(dlc_progress_engine_submit(group->engine, transfer, 2, NULL));
        while (*group->pending > 0)
            DLC_TRY(dlc_progress_engine_wait_any(group->engine));
    }
    return DLC_OK;
}
