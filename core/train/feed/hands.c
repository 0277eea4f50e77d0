/* See hands.h. Whoever is free takes the next piece; pieces are large (a sample), so a
 * lock for each costs nothing beside them. */
#include "train/feed/hands.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/thread.h"

struct dlc_hands {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t begun, done;
    void (*piece)(void *, int32_t);
    void *context;
    int32_t next, count, under_way;
    int stop;
    int32_t threads;
    pthread_t thread[];
};

/* The lock is held, but while a piece is done. */
static void take_pieces(dlc_hands *hands) {
    while (hands->next < hands->count) {
        int32_t i = hands->next++;
        hands->under_way++;
        pthread_mutex_unlock(&hands->lock);
        hands->piece(hands->context, i);
        pthread_mutex_lock(&hands->lock);
        hands->under_way--;
    }
}

static void *work(void *argument) {
    dlc_hands *hands = argument;
    pthread_mutex_lock(&hands->lock);
    while (!hands->stop) {
        take_pieces(hands);
        if (!hands->under_way)
            pthread_cond_signal(&hands->done);
        pthread_cond_wait(&hands->begun, &hands->lock);
    }
    pthread_mutex_unlock(&hands->lock);
    return NULL;
}

dlc_status dlc_hands_open(int32_t threads, dlc_hands **hands) {
    *hands = NULL;
    if (threads < 2)
        return DLC_OK;
    dlc_hands *made = dlc_alloc(1,
                                sizeof *made + (size_t)threads * sizeof *made->thread);
    if (!made)
        return DLC_ERR_NOMEM;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->begun, NULL);
    pthread_cond_init(&made->done, NULL);
    for (int32_t i = 0; i < threads - 1; i++) {
        dlc_status status = dlc_thread_start(&made->thread[i], "dlc-feed", work, made);
        if (status != DLC_OK) {
            dlc_hands_close(made);
            return status;
        }
        made->threads++;
    }
    *hands = made;
    return DLC_OK;
}

void dlc_hands_close(dlc_hands *hands) {
    if (!hands)
        return;
    pthread_mutex_lock(&hands->lock);
    hands->stop = 1;
    pthread_cond_broadcast(&hands->begun);
    pthread_mutex_unlock(&hands->lock);
    for (int32_t i = 0; i < hands->threads; i++)
        pthread_join(hands->thread[i], NULL);
    pthread_cond_destroy(&hands->done);
    pthread_cond_destroy(&hands->begun);
    pthread_mutex_destroy(&hands->lock);
    dlc_free(hands);
}

void dlc_hands_do(dlc_hands *hands, int32_t count, void (*piece)(void *, int32_t),
                  void *context) {
    if (!hands) {
        for (int32_t i = 0; i < count; i++)
            piece(context, i);
        return;
    }
    pthread_mutex_lock(&hands->lock);
    hands->piece = piece;
    hands->context = context;
    hands->next = 0;
    hands->count = count;
    pthread_cond_broadcast(&hands->begun);
    take_pieces(hands);
    while (hands->under_way)
        pthread_cond_wait(&hands->done, &hands->lock);
    pthread_mutex_unlock(&hands->lock);
}
