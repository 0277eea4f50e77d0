/* The thread of the outermost level: a ring of parts, done in the order in which they
 * are started. */
#include "comm/outer.h"

#include "base/memory.h"
#include "base/thread.h"

typedef struct part {
    dlc_team *team;
    float *buffer;
    size_t count;
} part;

struct dlc_outer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* for the thread; for the caller */
    part part[DLC_OUTER_PARTS];
    size_t started, ended, waited;
    int stop;
    dlc_status failed; /* the first error; later parts are left out */
    char *detail;      /* owned; of the error */
    atomic_int *cancelled;
    dlc_status (*check)(void *job); /* for the caller */
    void *job;
};

/* Does the next part. Called with the lock held, which is released in between. */
static void run_next(dlc_outer *o) {
    part its = o->part[o->ended % DLC_OUTER_PARTS];
    if (its.team && o->failed == DLC_OK) {
        (void)pthread_mutex_unlock(&o->lock);
        dlc_status status = dlc_team_all_reduce(its.team, its.buffer, its.count);
        char *detail = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
        (void)pthread_mutex_lock(&o->lock);
        o->failed = status;
        o->detail = detail;
        if (status != DLC_OK)
            atomic_store(o->cancelled, 1);
    }
    o->ended++;
    (void)pthread_cond_signal(&o->done);
}

static void *run(void *context) {
    dlc_outer *o = context;
    dlc_thread_request_short_slices();
    (void)pthread_mutex_lock(&o->lock);
    while (!o->stop || o->started > o->ended) {
        if (o->started > o->ended)
            run_next(o);
        else
            (void)pthread_cond_wait(&o->work, &o->lock);
    }
    (void)pthread_mutex_unlock(&o->lock);
    return NULL;
}

dlc_status dlc_outer_open(atomic_int *cancelled, dlc_status (*check)(void *job),
                          void *job, dlc_outer **outer) {
    dlc_outer *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = (dlc_outer){.cancelled = cancelled, .check = check, .job = job};
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->work, NULL);
    (void)pthread_cond_init(&made->done, NULL);
    dlc_status status = dlc_thread_start(&made->thread, "outer level", run, made);
    if (status != DLC_OK) {
        dlc_free(made);
        return status;
    }
    *outer = made;
    return DLC_OK;
}

void dlc_outer_close(dlc_outer *outer) {
    if (!outer)
        return;
    (void)pthread_mutex_lock(&outer->lock);
    outer->stop = 1;
    (void)pthread_cond_signal(&outer->work);
    (void)pthread_mutex_unlock(&outer->lock);
    (void)pthread_join(outer->thread, NULL);
    (void)pthread_cond_destroy(&outer->done);
    (void)pthread_cond_destroy(&outer->work);
    (void)pthread_mutex_destroy(&outer->lock);
    dlc_free(outer->detail);
    dlc_free(outer);
}

void dlc_outer_start(dlc_outer *outer, dlc_team *team, float *buffer, size_t count) {
    (void)pthread_mutex_lock(&outer->lock);
    outer->part[outer->started++ % DLC_OUTER_PARTS] = (part){team, buffer, count};
    (void)pthread_cond_signal(&outer->work);
    (void)pthread_mutex_unlock(&outer->lock);
}

/* Waits until `parts` have ended. With the lock held. */
static dlc_status wait_for(dlc_outer *o, size_t parts) {
    while (o->ended < parts)
        dlc_thread_wait(&o->done, &o->lock, o->check, o->job);
    o->waited = parts;
    if (o->failed == DLC_OK)
        return DLC_OK;
    return dlc_fail(o->failed, "%s", o->detail ? o->detail : "out of memory");
}

dlc_status dlc_outer_wait(dlc_outer *outer) {
    (void)pthread_mutex_lock(&outer->lock);
    dlc_status status = wait_for(outer, outer->waited + 1);
    (void)pthread_mutex_unlock(&outer->lock);
    return status;
}

dlc_status dlc_outer_cancel(dlc_outer *outer, dlc_status status) {
    char *detail = dlc_strdup(dlc_detail());
    atomic_store(outer->cancelled, 1);
    (void)pthread_mutex_lock(&outer->lock);
    dlc_status its = wait_for(outer, outer->started);
    (void)pthread_mutex_unlock(&outer->lock);
    if (its == DLC_OK || status != DLC_ERR_CANCELLED)
        its = dlc_fail(status, "%s", detail ? detail : "out of memory");
    dlc_free(detail);
    return its;
}
