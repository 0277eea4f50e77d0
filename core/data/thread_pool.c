/* A thread pool of the feed: every thread takes the next part when it is free, of the
 * oldest task that has one. Parts are large (a picture, or 64 KB of samples), so a lock
 * for each of them costs next to nothing. */
#include "data/thread_pool.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/thread.h"

struct dlc_thread_pool {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t begun, done;
    dlc_task *first, *last; /* the tasks with parts to take; first is NULL: none */
    int stop;
    int32_t begun_threads; /* by which each finds its number */
    int32_t threads;
    pthread_t thread[];
};

static int is_done(const dlc_task *task) {
    return task->next == task->count && !task->running;
}

/* Runs the next part; returns 0 if there is none. The lock is held, except while the
 * part runs. */
static int run_part(dlc_thread_pool *pool, int32_t thread) {
    dlc_task *task = pool->first;
    if (!task)
        return 0;
    int32_t i = task->next++;
    if (task->next == task->count)
        pool->first = task->after;
    task->running++;
    pthread_mutex_unlock(&pool->lock);
    task->part(task->context, i, thread);
    pthread_mutex_lock(&pool->lock);
    task->running--;
    if (is_done(task))
        pthread_cond_signal(&pool->done);
    return 1;
}

static void *work(void *argument) {
    dlc_thread_pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    int32_t thread = ++pool->begun_threads; /* 0 is the caller's */
    while (!pool->stop)
        if (!run_part(pool, thread))
            pthread_cond_wait(&pool->begun, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

dlc_status dlc_thread_pool_open(int32_t threads, dlc_thread_pool **pool) {
    *pool = NULL;
    if (threads < 2)
        return DLC_OK;
    dlc_thread_pool *made = dlc_alloc(1, sizeof *made +
                                             (size_t)threads * sizeof *made->thread);
    if (!made)
        return DLC_ERR_NOMEM;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->begun, NULL);
    pthread_cond_init(&made->done, NULL);
    for (int32_t i = 0; i < threads - 1; i++) {
        dlc_status status = dlc_thread_start(&made->thread[i], "dlc-feed", work, made);
        if (status != DLC_OK) {
            dlc_thread_pool_close(made);
            return status;
        }
        made->threads++;
    }
    *pool = made;
    return DLC_OK;
}

void dlc_thread_pool_close(dlc_thread_pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->begun);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < pool->threads; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->begun);
    pthread_mutex_destroy(&pool->lock);
    dlc_free(pool);
}

void dlc_thread_pool_start(dlc_thread_pool *pool, dlc_task *task) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    if (pool->first)
        pool->last->after = task;
    else
        pool->first = task;
    pool->last = task;
    pthread_cond_broadcast(&pool->begun);
    pthread_mutex_unlock(&pool->lock);
}

void dlc_thread_pool_wait(dlc_thread_pool *pool, dlc_task *task) {
    if (!pool) {
        for (int32_t i = 0; i < task->count; i++)
            task->part(task->context, i, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    while (!is_done(task))
        if (!run_part(pool, 0))
            pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void dlc_thread_pool_run(dlc_thread_pool *pool, int32_t count,
                         dlc_thread_pool_part *part, void *context) {
    dlc_task task = {.part = part, .context = context, .count = count};
    dlc_thread_pool_start(pool, &task);
    dlc_thread_pool_wait(pool, &task);
}
