/* The thread that fills the slots of a feed, and the threads that load samples for it.
 */
#include "data/feed_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* In training, the position of sample `i` of a batch. */
static int64_t position_of(const dlc_feed_args *args, int64_t iteration, int32_t i) {
    int64_t run = args->run ? args->run : args->count;
    return iteration * args->batch + args->offset + i / run * args->stride + i % run;
}

/* Is the sample after this one in the batch the other of its pair? */
static int begins_pair(const dlc_feed_args *args, int64_t iteration, int32_t i) {
    return i >= 0 && i + 1 < args->count &&
           position_of(args, iteration, i + 1) ==
               (position_of(args, iteration, i) ^ 1) &&
           position_of(args, iteration, i) % 2 == 0;
}

/* Sets the indices of the others of the pairs that are not whole in this batch. */
static void choose_partners(dlc_feed *feed, int64_t iteration) {
    const dlc_feed_args *args = &feed->args;
    for (int32_t i = 0; i < args->count; i++)
        feed->partner[i] = begins_pair(args, iteration, i) ||
                                   begins_pair(args, iteration, i - 1)
                               ? -1
                               : dlc_order_at(&feed->order,
                                              position_of(args, iteration, i) ^ 1);
}

/* Sets the indices of the samples in a batch; returns how many of them are real. */
static int32_t choose_samples(dlc_feed *feed, int64_t iteration) {
    const dlc_feed_args *args = &feed->args;
    if (!args->test) {
        for (int32_t i = 0; i < args->count; i++)
            feed->index[i] = dlc_order_at(&feed->order,
                                          position_of(args, iteration, i));
        if (dlc_mix_is_on(&args->mix))
            choose_partners(feed, iteration);
        return args->count;
    }
    int64_t begin = feed->begin + iteration * dlc_feed_step(args);
    int64_t left = feed->end > begin ? feed->end - begin : 0;
    int32_t samples = left < args->count ? (int32_t)left : args->count;
    for (int32_t i = 0; i < args->count; i++)
        feed->index[i] = i < samples ? begin + i : 0;
    return samples;
}

typedef struct filling {
    dlc_feed *feed;
    const slot *into;
} filling;

static void note_failure(failure *first, int32_t sample, dlc_status status) {
    pthread_mutex_lock(&first->lock);
    if (first->status == DLC_OK || sample < first->sample) {
        first->status = status;
        first->sample = sample;
        snprintf(first->detail, sizeof first->detail, "%s", dlc_detail());
    }
    pthread_mutex_unlock(&first->lock);
}

/* Loads a sample; if it cannot be read and may be skipped, the next one that can be, or
 * nothing in a test. So the result depends on the position alone. */
static dlc_status load_or_skip(dlc_feed *feed, dlc_load_scratch *scratch, int64_t index,
                               uint64_t position, void *const *to) {
    int64_t samples = dlc_feed_samples(feed);
    for (int64_t i = 0; i < samples; i++) {
        int64_t now = (index + i) % samples;
        dlc_status status = dlc_loader_load(&feed->loader, scratch, now, position, to);
        if (status != DLC_ERR_DATA)
            return status;
        DLC_TRY(dlc_skips_add(&feed->skips, now));
        if (feed->args.test) {
            dlc_batch_clear(&feed->layout, to, 0);
            return DLC_OK;
        }
    }
    return dlc_fail(DLC_ERR_DATA, "not one of the samples can be read: %s",
                    dlc_detail());
}

/* Loads one sample of a batch, on any thread of the pool. */
static void load_sample(void *context, int32_t i, int32_t thread) {
    const filling *f = context;
    dlc_feed *feed = f->feed;
    void *to[DLC_NET_FIELDS];
    dlc_batch_find(&feed->layout, f->into->base, i, to);
    dlc_status status = load_or_skip(
        feed, &feed->scratch[thread], feed->index[i],
        (uint64_t)position_of(&feed->args, f->into->iteration, i), to);
    if (status != DLC_OK)
        note_failure(&feed->failure, i, status);
}

/* Loads the other of a pair, which another rank or batch has. */
static dlc_status load_partner(dlc_feed *feed, int32_t thread, int64_t index,
                               int64_t position, void *to[DLC_NET_FIELDS]) {
    dlc_batch_find(&feed->mixed_layout,
                   feed->mixed + (size_t)thread * feed->mixed_layout.bytes, 0, to);
    return load_or_skip(feed, &feed->scratch[thread], index, (uint64_t)position, to);
}

/* Mixes a sample of a batch with the other of its pair. */
static void mix_sample(void *context, int32_t i, int32_t thread) {
    const filling *f = context;
    dlc_feed *feed = f->feed;
    const dlc_feed_args *args = &feed->args;
    int64_t iteration = f->into->iteration, position = position_of(args, iteration, i);
    void *one[DLC_NET_FIELDS], *other[DLC_NET_FIELDS];
    dlc_status status = DLC_OK;
    if (begins_pair(args, iteration, i - 1))
        return; /* with the one before */
    dlc_batch_find(&feed->layout, f->into->base, i, one);
    if (feed->partner[i] < 0)
        dlc_batch_find(&feed->layout, f->into->base, i + 1, other);
    else
        status = load_partner(feed, thread, feed->partner[i], position ^ 1, other);
    if (status != DLC_OK) {
        note_failure(&feed->failure, i, status);
        return;
    }
    dlc_mix mix = dlc_mix_draw(&args->mix, &feed->loader, position / 2);
    dlc_mix_pair(&mix, &feed->loader, one, other);
}

static dlc_status fill_slot(dlc_feed *feed, slot *into, int64_t iteration) {
    const dlc_feed_args *args = &feed->args;
    filling f = {.feed = feed, .into = into};
    int32_t samples = choose_samples(feed, iteration);
    into->samples = samples;
    into->iteration = iteration;
    feed->failure.status = DLC_OK;
    dlc_thread_pool_run(feed->pool, args->count, load_sample, &f);
    if (feed->failure.status == DLC_OK && feed->partner)
        dlc_thread_pool_run(feed->pool, args->count, mix_sample, &f);
    if (feed->failure.status != DLC_OK)
        return dlc_fail(feed->failure.status, "%s", feed->failure.detail);
    for (int32_t i = samples; i < args->count; i++) {
        void *to[DLC_NET_FIELDS];
        dlc_batch_find(&feed->layout, into->base, i, to);
        dlc_batch_clear(&feed->layout, to, 1);
    }
    return DLC_OK;
}

void *dlc_feed_read(void *argument) {
    dlc_feed *feed = argument;
    pthread_mutex_lock(&feed->lock);
    while (!feed->stop) {
        int32_t used = feed->held + feed->ready;
        if (feed->status != DLC_OK || used == feed->slot_count) {
            pthread_cond_wait(&feed->room, &feed->lock);
            continue;
        }
        slot *into = &feed->slots[(feed->first + used) % feed->slot_count];
        int64_t iteration = feed->wanted;
        uint64_t generation = feed->generation;
        pthread_mutex_unlock(&feed->lock);
        dlc_status status = fill_slot(feed, into, iteration);
        pthread_mutex_lock(&feed->lock);
        if (generation != feed->generation)
            continue;
        if (status != DLC_OK) {
            feed->status = status;
            snprintf(feed->detail, sizeof feed->detail, "%s", dlc_detail());
        } else {
            feed->ready++;
            feed->wanted = dlc_feed_successor(feed, iteration);
        }
        pthread_cond_signal(&feed->done);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}
