/* The thread that fills the slots of a feed, and the threads that load samples for it.
 */
#include "data/feed_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static int is_current(const filling *f) {
    return f->generation == f->feed->generation;
}

/* Is the sample after this one in the batch the other of its pair? */
static int begins_pair(const dlc_feed_args *args, int64_t iteration, int32_t i) {
    return i >= 0 && i + 1 < args->count &&
           dlc_feed_position(args, iteration, i + 1) ==
               (dlc_feed_position(args, iteration, i) ^ 1) &&
           dlc_feed_position(args, iteration, i) % 2 == 0;
}

/* Sets the indices of the others of the pairs that are not whole in this batch. */
static void choose_partners(filling *f, int64_t iteration) {
    const dlc_feed_args *args = &f->feed->args;
    for (int32_t i = 0; i < args->count; i++)
        f->partner[i] = begins_pair(args, iteration, i) ||
                                begins_pair(args, iteration, i - 1)
                            ? -1
                            : dlc_order_at(&f->feed->order,
                                           dlc_feed_position(args, iteration, i) ^ 1);
}

/* Sets the indices of the samples in a batch; returns how many of them are real. */
static int32_t choose_samples(filling *f, int64_t iteration) {
    dlc_feed *feed = f->feed;
    const dlc_feed_args *args = &feed->args;
    if (!args->test) {
        int32_t run = dlc_feed_run(args);
        for (int32_t i = 0; i < args->count; i += run)
            dlc_order_take(&feed->order, dlc_feed_position(args, iteration, i),
                           args->count - i < run ? args->count - i : run, f->index + i);
        if (f->partner)
            choose_partners(f, iteration);
        return args->count;
    }
    int64_t begin = feed->begin + iteration * dlc_feed_step(args);
    int64_t left = feed->end > begin ? feed->end - begin : 0;
    int32_t samples = left < args->count ? (int32_t)left : args->count;
    for (int32_t i = 0; i < args->count; i++)
        f->index[i] = i < samples ? begin + i : 0;
    return samples;
}

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

static void load_sample(filling *f, int32_t i, int32_t thread, void *const *to) {
    dlc_feed *feed = f->feed;
    dlc_status status = load_or_skip(
        feed, &feed->scratch[thread], f->index[i],
        (uint64_t)dlc_feed_position(&feed->args, f->into->iteration, i), to);
    if (status != DLC_OK)
        note_failure(&f->failure, i, status);
}

/* Loads a part of a batch, on any thread of the pool. */
static void load_part(void *context, int32_t part, int32_t thread) {
    filling *f = context;
    dlc_feed *feed = f->feed;
    int32_t i = part * f->part, left = feed->args.count - i;
    int32_t count = left < f->part ? left : f->part;
    void *to[DLC_NET_FIELDS];
    dlc_batch_find(&feed->layout, f->into->base, i, to);
    if (feed->loader.in_runs && is_current(f) &&
        dlc_loader_load_run(&feed->loader, count, f->index + i, to) == DLC_OK)
        return;
    for (; count-- > 0 && is_current(f); i++) {
        dlc_batch_find(&feed->layout, f->into->base, i, to);
        load_sample(f, i, thread, to);
    }
}

/* The samples that a thread takes at once: so many that taking them costs little,
 * beside copying them, and at most its share of the batch. Files of pictures take long.
 */
static int32_t samples_at_once(const dlc_feed *feed) {
    enum { BYTES = 64 << 10 };
    int64_t share = feed->args.count / (feed->args.threads + 1);
    int64_t most = feed->loader.in_bytes ? BYTES / (int64_t)feed->loader.in_bytes : 1;
    int64_t part = share < most ? share : most;
    return part > 1 ? (int32_t)part : 1;
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
    filling *f = context;
    dlc_feed *feed = f->feed;
    const dlc_feed_args *args = &feed->args;
    int64_t iteration = f->into->iteration,
            position = dlc_feed_position(args, iteration, i);
    void *one[DLC_NET_FIELDS], *other[DLC_NET_FIELDS];
    dlc_status status = DLC_OK;
    if (begins_pair(args, iteration, i - 1))
        return; /* with the one before */
    dlc_batch_find(&feed->layout, f->into->base, i, one);
    if (f->partner[i] < 0)
        dlc_batch_find(&feed->layout, f->into->base, i + 1, other);
    else
        status = load_partner(feed, thread, f->partner[i], position ^ 1, other);
    if (status != DLC_OK) {
        note_failure(&f->failure, i, status);
        return;
    }
    dlc_mix mix = dlc_mix_draw(&args->mix, &feed->loader, position / 2);
    dlc_mix_pair(&mix, &feed->loader, one, other);
}

/* ---- Batches ----------------------------------------------------------------- */

/* Chooses the samples of a batch, and lets the pool load them. */
static void begin_filling(filling *f) {
    int32_t count = f->feed->args.count;
    f->into->samples = choose_samples(f, f->into->iteration);
    f->failure.status = DLC_OK;
    f->part = samples_at_once(f->feed);
    f->task = (dlc_task){
        .part = load_part, .context = f, .count = (count + f->part - 1) / f->part};
    dlc_thread_pool_start(f->feed->pool, &f->task);
}

static dlc_status end_filling(filling *f) {
    dlc_feed *feed = f->feed;
    int32_t count = feed->args.count;
    dlc_thread_pool_wait(feed->pool, &f->task);
    if (f->failure.status == DLC_OK && f->partner && is_current(f))
        dlc_thread_pool_run(feed->pool, count, mix_sample, f);
    if (f->failure.status != DLC_OK)
        return dlc_fail(f->failure.status, "%s", f->failure.detail);
    for (int32_t i = f->into->samples; i < count; i++) {
        void *to[DLC_NET_FIELDS];
        dlc_batch_find(&feed->layout, f->into->base, i, to);
        dlc_batch_clear(&feed->layout, to, 1);
    }
    return DLC_OK;
}

/* May the next batch be begun? Without a pool, one at a time. */
static int has_room(const dlc_feed *feed) {
    int32_t most = feed->pool ? DLC_FEED_FILLINGS : 1;
    return feed->status == DLC_OK && feed->begun < most &&
           feed->held + feed->ready + feed->begun < feed->slot_count &&
           (!feed->begun || is_current(&feed->filling[feed->oldest]));
}

/* The lock is held, except while samples are chosen. */
static void begin_next(dlc_feed *feed) {
    int32_t used = feed->held + feed->ready + feed->begun;
    filling *f = &feed->filling[(feed->oldest + feed->begun) % DLC_FEED_FILLINGS];
    f->into = &feed->slots[(feed->first + used) % feed->slot_count];
    f->into->iteration = feed->wanted;
    f->generation = feed->generation;
    feed->wanted = dlc_feed_successor(feed, feed->wanted);
    feed->begun++;
    pthread_mutex_unlock(&feed->lock);
    begin_filling(f);
    pthread_mutex_lock(&feed->lock);
}

/* The lock is held, except while samples are loaded. */
static void end_oldest_filling(dlc_feed *feed) {
    filling *f = &feed->filling[feed->oldest];
    pthread_mutex_unlock(&feed->lock);
    dlc_status status = end_filling(f);
    pthread_mutex_lock(&feed->lock);
    feed->oldest = (feed->oldest + 1) % DLC_FEED_FILLINGS;
    feed->begun--;
    if (!is_current(f) || feed->status != DLC_OK)
        return;
    if (status == DLC_OK) {
        feed->ready++;
    } else {
        feed->status = status;
        snprintf(feed->detail, sizeof feed->detail, "%s", dlc_detail());
    }
    pthread_cond_signal(&feed->done);
}

void *dlc_feed_read(void *argument) {
    dlc_feed *feed = argument;
    pthread_mutex_lock(&feed->lock);
    while (!feed->stop || feed->begun) {
        if (!feed->stop && has_room(feed))
            begin_next(feed);
        else if (feed->begun)
            end_oldest_filling(feed);
        else
            pthread_cond_wait(&feed->room, &feed->lock);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}
