/* The feed's ring of batches and the thread that fills it. Slots `first` .. `first +
 * held + ready - 1` are in use, of which the oldest belongs to the caller while `held`
 * is 1; the thread fills the next one while there is room. A seek drops what is ready
 * and, by a new generation, what is being filled. */
#include "data/feed.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/batch_layout.h"
#include "data/order.h"
#include "data/skips.h"
#include "data/thread_pool.h"

#define DETAIL_BYTES 1024

typedef struct slot {
    dlc_memory memory; /* of all fields, where it is the device's */
    void *base;        /* of all fields */
    int32_t *labels;   /* own; NULL: those of the field */
    int32_t samples;
    int64_t iteration;
} slot;

/* The first sample of a batch that could not be loaded, which is the same one however
 * many threads there are. */
typedef struct failure {
    pthread_mutex_t lock;
    int32_t sample;    /* in the batch */
    dlc_status status; /* DLC_OK: there is none */
    char detail[DETAIL_BYTES];
} failure;

struct dlc_feed {
    dlc_feed_args args;
    dlc_loader loader;
    dlc_batch_layout layout; /* of a slot */
    int64_t begin, end;      /* test: this rank's samples */
    int64_t batches;         /* test: number of batches in them */

    /* Used by the reading thread and its pool alone. */
    dlc_order order;
    int64_t *index; /* of the samples of a batch */
    int64_t
        *partner; /* of those that they are mixed with, outside of the batch, or -1 */
    dlc_thread_pool *pool;
    dlc_load_scratch *scratch; /* of each thread of the pool */
    char *mixed;               /* for each thread, a sample to mix with; or NULL */
    dlc_batch_layout mixed_layout;
    dlc_skips skips;
    failure failure; /* of the batch that is being filled */
    double waited;   /* seconds that the caller has; its own */

    pthread_t thread;
    int has_lock, has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t room, done;
    slot *slots;
    int32_t slot_count, first, held, ready;
    int64_t wanted;    /* iteration to be filled next */
    int64_t delivered; /* iteration of the caller's next batch */
    uint64_t generation;
    int stop;
    dlc_status status; /* of the thread, which stops reading after an error */
    char detail[DETAIL_BYTES];
};

/* ---- The reading thread ---------------------------------------------------- */

/* From a test batch to the next. */
static int64_t test_step(const dlc_feed_args *args) {
    return args->stride ? args->stride : args->count;
}

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
    int64_t begin = feed->begin + iteration * test_step(args);
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

/* The iteration that follows; in a test the last one is followed by the first. */
static int64_t successor(const dlc_feed *feed, int64_t iteration) {
    return feed->args.test ? (iteration + 1) % feed->batches : iteration + 1;
}

static void *read_ahead(void *argument) {
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
            feed->wanted = successor(feed, iteration);
        }
        pthread_cond_signal(&feed->done);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

/* ---- Opening --------------------------------------------------------------- */

static dlc_status check_args(const dlc_feed_args *args) {
    int sound = args->count >= 1 && args->prefetch >= 0 && args->threads >= 0;
    if (args->test)
        sound = sound && args->rank >= 0 && args->rank < args->ranks;
    else
        sound = sound && args->offset >= 0 &&
                args->offset <= args->batch - (args->run ? 1 : args->count);
    if (!sound)
        return dlc_fail(
            DLC_ERR_INTERNAL,
            "feed: invalid arguments: %d samples per batch at offset %lld of "
            "%lld, rank %d of %d, prefetch %d",
            args->count, (long long)args->offset, (long long)args->batch, args->rank,
            args->ranks, args->prefetch);
    return DLC_OK;
}

dlc_loader_args dlc_feed_loader_args(const dlc_feed_args *args) {
    return (dlc_loader_args){.ops = args->ops,
                             .source = args->source,
                             .concurrent = args->concurrent,
                             .decoders = args->decoders,
                             .max_pixels = args->max_pixels,
                             .transforms = args->transforms,
                             .seed = args->seed,
                             .test = args->test,
                             .soft_labels = !args->test && dlc_mix_is_on(&args->mix),
                             .keep_bytes = args->keep_bytes && args->mix.mixup <= 0,
                             .fields = args->fields};
}

static dlc_status open_loader(dlc_feed *feed) {
    dlc_loader_args args = dlc_feed_loader_args(&feed->args);
    return dlc_loader_open(&args, &feed->loader);
}

/* The threads that load samples, the reading one among them. */
static size_t loading_threads(const dlc_feed *feed) {
    return feed->args.threads > 1 ? (size_t)feed->args.threads : 1;
}

/* Batches to keep ready: enough to hide a source that is slow at times, unless batches
 * are huge. */
static int32_t batches_ahead(const dlc_feed *feed) {
    enum { MOST = 3, ROOM = 32 << 20 };
    if (feed->args.prefetch)
        return feed->args.prefetch;
    if (feed->args.low_memory)
        return 0;
    double batch = (double)feed->args.count * (double)feed->loader.bytes;
    return batch * MOST <= ROOM ? MOST : batch * 2 <= ROOM ? 2 : 1;
}

static dlc_status alloc_labels(const dlc_feed *feed, slot *made) {
    size_t count = (size_t)feed->args.count;
    if (dlc_batch_has_classes(&feed->layout))
        return DLC_OK;
    made->labels = dlc_alloc(count, sizeof *made->labels);
    if (!made->labels)
        return DLC_ERR_NOMEM;
    memset(made->labels, 0xff, count * sizeof *made->labels);
    return DLC_OK;
}

static dlc_status alloc_slot(const dlc_feed *feed, slot *made) {
    const dlc_feed_args *args = &feed->args;
    DLC_TRY(alloc_labels(feed, made));
    if (!args->device_ops) {
        made->base = dlc_alloc(feed->layout.bytes, 1);
        return made->base ? DLC_OK : DLC_ERR_NOMEM;
    }
    made->memory.size = sizeof made->memory;
    DLC_TRY(args->device_ops->alloc(args->device, feed->layout.bytes, DLC_MEM_STAGING,
                                    &made->memory));
    made->base = made->memory.base;
    return DLC_OK;
}

static void free_slot(const dlc_feed *feed, slot *made) {
    const dlc_feed_args *args = &feed->args;
    if (!args->device_ops)
        dlc_free(made->base);
    else if (made->memory.base)
        args->device_ops->free(args->device, &made->memory);
    dlc_free(made->labels);
}

/* Memory of pairs that are not whole in a batch. */
static dlc_status alloc_mixed(dlc_feed *feed) {
    size_t count = (size_t)feed->args.count;
    if (feed->args.test || !dlc_mix_is_on(&feed->args.mix))
        return DLC_OK;
    DLC_TRY(dlc_mix_check(&feed->args.mix, &feed->loader));
    DLC_TRY(dlc_batch_layout_make(&feed->loader, 1, &feed->mixed_layout));
    feed->partner = dlc_alloc(count, sizeof *feed->partner);
    feed->mixed = dlc_alloc(loading_threads(feed), feed->mixed_layout.bytes);
    return feed->partner && feed->mixed ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status alloc_slots(dlc_feed *feed) {
    size_t count = (size_t)feed->args.count;
    feed->slot_count = batches_ahead(feed) + 1; /* the caller holds one */
    feed->slots = dlc_alloc((size_t)feed->slot_count, sizeof *feed->slots);
    feed->index = dlc_alloc(count, sizeof *feed->index);
    feed->scratch = dlc_alloc(loading_threads(feed), sizeof *feed->scratch);
    if (!feed->slots || !feed->index || !feed->scratch)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_batch_layout_make(&feed->loader, count, &feed->layout));
    for (int32_t i = 0; i < feed->slot_count; i++)
        DLC_TRY(alloc_slot(feed, &feed->slots[i]));
    return alloc_mixed(feed);
}

static dlc_status start_thread(dlc_feed *feed) {
    pthread_mutex_init(&feed->lock, NULL);
    pthread_mutex_init(&feed->failure.lock, NULL);
    pthread_cond_init(&feed->room, NULL);
    pthread_cond_init(&feed->done, NULL);
    feed->has_lock = 1;
    DLC_TRY(dlc_thread_pool_open(feed->args.threads, &feed->pool));
    DLC_TRY(dlc_thread_start(&feed->thread, "dlc-feed", read_ahead, feed));
    feed->has_thread = 1;
    return DLC_OK;
}

/* The samples that this rank tests. */
static void choose_test(dlc_feed *feed) {
    const dlc_feed_args *args = &feed->args;
    int64_t samples = dlc_feed_test_samples(feed), step = test_step(args);
    feed->begin = args->first +
                  (args->stride ? args->offset : samples * args->rank / args->ranks);
    feed->end = args->first +
                (args->stride ? samples : samples * (args->rank + 1) / args->ranks);
    int64_t tested = args->stride ? samples : feed->end - feed->begin;
    feed->batches = (tested + step - 1) / step;
}

static dlc_status prepare(dlc_feed *feed) {
    const dlc_feed_args *args = &feed->args;
    DLC_TRY(open_loader(feed));
    if (args->test) {
        choose_test(feed);
        if (!feed->batches)
            return DLC_OK; /* this rank has nothing to read */
    } else {
        DLC_TRY(dlc_order_open(dlc_feed_samples(feed), args->seed, args->shuffle,
                               args->shuffle_window, &feed->order));
    }
    DLC_TRY(dlc_skips_open(args->max_skipped, &feed->skips));
    DLC_TRY(alloc_slots(feed));
    return start_thread(feed);
}

dlc_status dlc_feed_bytes(const dlc_feed_args *args, uint64_t *bytes, uint64_t *batch) {
    dlc_feed feed = {.args = *args};
    DLC_TRY(check_args(args));
    DLC_TRY(open_loader(&feed));
    uint64_t count = (uint64_t)args->count;
    *batch = count * feed.loader.bytes;
    *bytes = ((uint64_t)batches_ahead(&feed) + 1) * *batch;
    if (!feed.loader.as_read)
        *bytes += loading_threads(&feed) * feed.loader.in_bytes;
    if (!args->test)
        *bytes += dlc_order_bytes(dlc_feed_samples(&feed), args->shuffle,
                                  args->shuffle_window);
    dlc_loader_close(&feed.loader);
    return DLC_OK;
}

dlc_status dlc_feed_open(const dlc_feed_args *args, dlc_feed **feed) {
    DLC_TRY(check_args(args));
    dlc_feed *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = prepare(made);
    if (status != DLC_OK) {
        dlc_feed_close(made);
        return status;
    }
    *feed = made;
    return DLC_OK;
}

void dlc_feed_close(dlc_feed *feed) {
    if (!feed)
        return;
    if (feed->has_thread) {
        pthread_mutex_lock(&feed->lock);
        feed->stop = 1;
        pthread_cond_signal(&feed->room);
        pthread_mutex_unlock(&feed->lock);
        pthread_join(feed->thread, NULL);
    }
    dlc_thread_pool_close(feed->pool);
    if (feed->has_lock) {
        pthread_cond_destroy(&feed->done);
        pthread_cond_destroy(&feed->room);
        pthread_mutex_destroy(&feed->failure.lock);
        pthread_mutex_destroy(&feed->lock);
    }
    for (int32_t i = 0; feed->slots && i < feed->slot_count; i++)
        free_slot(feed, &feed->slots[i]);
    dlc_free(feed->slots);
    for (size_t i = 0; feed->scratch && i < loading_threads(feed); i++)
        dlc_load_scratch_free(&feed->scratch[i]);
    dlc_free(feed->scratch);
    dlc_free(feed->mixed);
    dlc_free(feed->partner);
    dlc_free(feed->index);
    dlc_skips_close(&feed->skips);
    dlc_loader_close(&feed->loader);
    dlc_order_close(&feed->order);
    dlc_free(feed);
}

/* ---- Calls ----------------------------------------------------------------- */

int32_t dlc_feed_fields(const dlc_feed *feed) {
    return feed->loader.fields;
}

const dlc_loaded_field *dlc_feed_field(const dlc_feed *feed, int32_t i) {
    return &feed->loader.field[i];
}

dlc_shape dlc_feed_shape(const dlc_feed *feed) {
    return feed->loader.field[DLC_FIELD_DATA].shape;
}

dlc_dtype dlc_feed_dtype(const dlc_feed *feed) {
    return feed->loader.field[DLC_FIELD_DATA].dtype;
}

const dlc_transforms *dlc_feed_transforms(const dlc_feed *feed) {
    return feed->args.transforms;
}

int64_t dlc_feed_samples(const dlc_feed *feed) {
    return feed->loader.samples.info.samples;
}

int64_t dlc_feed_test_samples(const dlc_feed *feed) {
    return feed->args.samples ? feed->args.samples : dlc_feed_samples(feed);
}

int64_t dlc_feed_batches(const dlc_feed *feed) {
    return feed->batches;
}

static dlc_status no_samples(const dlc_feed *feed) {
    return dlc_fail(DLC_ERR_INTERNAL, "feed: rank %d of %d has no samples to read",
                    feed->args.rank, feed->args.ranks);
}

double dlc_feed_waited(const dlc_feed *feed) {
    return feed->waited;
}

/* Waits for a batch or an error; the lock is held. */
static void wait_until_ready(dlc_feed *feed) {
    if (feed->ready || feed->status != DLC_OK)
        return;
    uint64_t begin = dlc_now_ns();
    while (!feed->ready && feed->status == DLC_OK)
        pthread_cond_wait(&feed->done, &feed->lock);
    feed->waited += dlc_since(begin);
}

static void hand_over(const dlc_feed *feed, const slot *from, dlc_batch *batch) {
    *batch = (dlc_batch){
        .labels = from->labels, .samples = from->samples, .iteration = from->iteration};
    void *field[DLC_NET_FIELDS];
    dlc_batch_find(&feed->layout, from->base, 0, field);
    for (int32_t i = 0; i < feed->loader.fields; i++)
        batch->field[i] = field[i];
    batch->data = batch->field[DLC_FIELD_DATA];
    if (!batch->labels)
        batch->labels = batch->field[DLC_FIELD_LABEL];
}

dlc_status dlc_feed_next(dlc_feed *feed, dlc_batch *batch) {
    if (!feed->has_thread)
        return no_samples(feed);
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&feed->lock);
    if (feed->held) {
        feed->held = 0;
        feed->first = (feed->first + 1) % feed->slot_count;
        pthread_cond_signal(&feed->room);
    }
    wait_until_ready(feed);
    if (feed->ready) {
        const slot *from = &feed->slots[feed->first];
        feed->ready--;
        feed->held = 1;
        feed->delivered = successor(feed, from->iteration);
        hand_over(feed, from, batch);
    } else {
        status = dlc_fail(feed->status, "%s", feed->detail);
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

dlc_status dlc_feed_seek(dlc_feed *feed, int64_t iteration) {
    const dlc_feed_args *args = &feed->args;
    if (args->test && !feed->batches)
        return iteration ? no_samples(feed) : DLC_OK;
    int64_t limit = args->test ? feed->batches : INT64_MAX / args->batch - 1;
    if (iteration < 0 || iteration >= limit)
        return dlc_fail(DLC_ERR_INTERNAL, "feed: there is no iteration %lld",
                        (long long)iteration);
    pthread_mutex_lock(&feed->lock);
    if (iteration != feed->delivered) {
        feed->ready = 0;
        feed->delivered = feed->wanted = iteration;
        feed->generation++;
        pthread_cond_signal(&feed->room);
    }
    pthread_mutex_unlock(&feed->lock);
    return DLC_OK;
}
