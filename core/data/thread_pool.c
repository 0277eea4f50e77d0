/* A thread pool of the feed: every thread takes the next part when it is free. Parts
 * are large (a sample each), so a lock for each of them costs next to nothing. */
#include "data/thread_pool.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/thread.h"

struct dlc_thread_pool {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t begun, done;
    dlc_thread_pool_part *part;
    void *context;
    int32_t next, count, running;
    int stop;
    int32_t begun_threads; /* by which each finds its number */
    int32_t threads;
    pthread_t thread[];
};

/* Runs parts until none is left. The lock is held, except while a part runs. */
static void run_parts(dlc_thread_pool *pool, int32_t thread) {
    while (pool->next < pool->count) {
        int32_t i = pool->next++;
        pool->running++;
        pthread_mutex_unlock(&pool->lock);
        pool->part(pool->context, i, thread);
        pthread_mutex_lock(&pool->lock);
        pool->running--;
    }
}

static void *work(void *argument) {
    dlc_thread_pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    int32_t thread = ++pool->begun_threads; /* 0 is the caller's */
    while (!pool->stop) {
        run_parts(pool, thread);
        if (!pool->running)
            pthread_cond_signal(&pool->done);
        pthread_cond_wait(&pool->begun, &pool->lock);
    }
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

void dlc_thread_pool_run(dlc_thread_pool *pool, int32_t count,
                         dlc_thread_pool_part *part, void *context) {
    if (!pool) {
        for (int32_t i = 0; i < count; i++)
            part(context, i, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->part = part;
    pool->context = context;
    pool->next = 0;
    pool->count = count;
    pthread_cond_broadcast(&pool->begun);
    run_parts(pool, 0);
    while (pool->running)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
