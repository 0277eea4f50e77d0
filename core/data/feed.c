/* The feed's ring of batches and the thread that fills it. Slots `first` .. `first +
 * held + ready - 1` are in use, of which the oldest belongs to the caller while `held`
 * is 1; the thread fills the next one while there is room. A seek drops what is ready
 * and, by a new generation, what is being filled. */
#include "data/feed.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "data/order.h"
#include "data/thread_pool.h"

#define DETAIL_BYTES 1024
#define LINE ((size_t)64) /* bytes of a cache line */

typedef struct slot {
    dlc_memory memory; /* of both, where it is the device's */
    void *data;
    int32_t *labels;
    int32_t samples;
    int64_t iteration;
} slot;

struct dlc_feed {
    dlc_feed_args args;
    dlc_data_info info;
    dlc_shape shape;    /* of a sample in a batch */
    dlc_dtype dtype;    /* of the data in a batch */
    int as_read;        /* batches are what the source gives, unchanged */
    size_t in_bytes;    /* of a sample of the source */
    size_t out_bytes;   /* of a sample in a batch */
    int64_t begin, end; /* test: this rank's samples */
    int64_t batches;    /* test: number of batches in them */

    /* Used by the reading thread alone. */
    dlc_order order;
    int64_t *index;    /* of the samples of a batch */
    unsigned char *in; /* a batch as the source gives it; NULL with `as_read` */
    dlc_thread_pool *pool;

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

/* Sets the indices of the samples in a batch; returns how many of them are real. */
static int32_t choose_samples(dlc_feed *feed, int64_t iteration) {
    const dlc_feed_args *args = &feed->args;
    if (!args->test) {
        int64_t position = iteration * args->batch + args->offset;
        for (int32_t i = 0; i < args->count; i++)
            feed->index[i] = dlc_order_at(&feed->order, position + i);
        return args->count;
    }
    int64_t begin = feed->begin + iteration * args->count;
    int64_t left = feed->end - begin;
    int32_t samples = left < args->count ? (int32_t)left : args->count;
    for (int32_t i = 0; i < args->count; i++)
        feed->index[i] = i < samples ? begin + i : 0;
    return samples;
}

dlc_status dlc_feed_check_labels(const dlc_data_info *info, const int64_t *index,
                                 const int32_t *labels, int32_t count) {
    if (!info->classes)
        return DLC_OK;
    for (int32_t i = 0; i < count; i++) {
        if (labels[i] < 0 || labels[i] >= info->classes)
            return dlc_fail(DLC_ERR_DATA,
                            "sample %lld has label %d, but the source has classes 0 to "
                            "%d",
                            (long long)index[i], labels[i], info->classes - 1);
    }
    return DLC_OK;
}

typedef struct filling {
    const dlc_feed *feed;
    const slot *into;
} filling;

/* Converts and augments one sample, on any thread of the pool. */
static void make_sample(void *context, int32_t i) {
    const filling *f = context;
    const dlc_feed *feed = f->feed;
    const dlc_feed_args *args = &feed->args;
    const dlc_shape *in = &feed->info.shape;
    const unsigned char *from = feed->in + (size_t)i * feed->in_bytes;
    void *to = (char *)f->into->data + (size_t)i * feed->out_bytes;
    uint64_t position = (uint64_t)(f->into->iteration * args->batch + args->offset + i);
    dlc_cut cut = args->test ? dlc_augment_middle(in, &feed->shape, &args->augment)
                             : dlc_augment_draw(in, &feed->shape, &args->augment,
                                                args->seed, position);
    if (feed->dtype == DLC_U8)
        dlc_augment_cut(&args->augment, &cut, in, from, &feed->shape, to);
    else
        dlc_augment_apply(&args->augment, &cut, feed->info.dtype, in, from,
                          &feed->shape, to);
}

static dlc_status fill_slot(dlc_feed *feed, slot *into, int64_t iteration) {
    const dlc_feed_args *args = &feed->args;
    int32_t samples = choose_samples(feed, iteration);
    void *data = feed->as_read ? into->data : feed->in;
    DLC_TRY(
        args->ops->read(args->source, args->count, feed->index, data, into->labels));
    DLC_TRY(dlc_feed_check_labels(&feed->info, feed->index, into->labels, args->count));
    for (int32_t i = samples; i < args->count; i++)
        into->labels[i] = DLC_LABEL_NONE;
    into->samples = samples;
    into->iteration = iteration;
    if (!args->labels_only && !feed->as_read)
        dlc_thread_pool_run(feed->pool, args->count, make_sample,
                            &(filling){.feed = feed, .into = into});
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
        sound = sound && args->offset >= 0 && args->batch >= args->count &&
                args->offset <= args->batch - args->count;
    if (!sound)
        return dlc_fail(
            DLC_ERR_INTERNAL,
            "feed: invalid arguments: %d samples per batch at offset %lld of "
            "%lld, rank %d of %d, prefetch %d",
            args->count, (long long)args->offset, (long long)args->batch, args->rank,
            args->ranks, args->prefetch);
    return DLC_OK;
}

/* Asks the source to describe itself, and checks the answer. */
static dlc_status describe(dlc_feed *feed) {
    dlc_data_info *info = &feed->info;
    info->size = sizeof *info;
    DLC_TRY(feed->args.ops->describe(feed->args.source, info));
    size_t bytes = dlc_dtype_bytes(info->dtype);
    int sound = info->samples >= 1 && info->shape.rank == 3 && info->classes >= 0 &&
                (info->dtype == DLC_U8 || info->dtype == DLC_F32);
    for (int32_t i = 0; sound && i < 3; i++)
        sound = info->shape.dims[i] >= 1 &&
                !__builtin_mul_overflow(bytes, (size_t)info->shape.dims[i], &bytes);
    if (!sound || bytes > PTRDIFF_MAX / sizeof(float))
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the data source describes invalid samples: there must be at "
                        "least one, of shape C, H, W, as bytes or float32");
    feed->in_bytes = bytes;
    return DLC_OK;
}

/* Determines the shape and the type of the samples in a batch. */
static dlc_status choose_format(dlc_feed *feed) {
    const dlc_feed_args *args = &feed->args;
    const dlc_augment *augment = &args->augment;
    DLC_TRY(describe(feed));
    DLC_TRY(dlc_augment_shape(augment, &feed->info.shape, &feed->shape));
    int as_bytes = args->keep_bytes && feed->info.dtype == DLC_U8;
    int mirrored = augment->mirror && !args->test;
    feed->dtype = as_bytes ? DLC_U8 : DLC_F32;
    feed->as_read = as_bytes && !mirrored &&
                    dlc_augment_is_whole(augment, &feed->info.shape, &feed->shape);
    size_t count = (size_t)dlc_shape_count(&feed->shape);
    if (__builtin_mul_overflow(count, dlc_dtype_bytes(feed->dtype), &feed->out_bytes))
        return dlc_fail(DLC_ERR_NOMEM, "a sample of %zu values is too large", count);
    return DLC_OK;
}

/* Batches to keep ready: enough to hide a source that is slow at times, unless batches
 * are huge. */
static int32_t batches_ahead(const dlc_feed *feed) {
    enum { MOST = 3, ROOM = 32 << 20 };
    if (feed->args.prefetch)
        return feed->args.prefetch;
    if (feed->args.low_memory)
        return 0;
    double batch = (double)feed->args.count * (double)feed->out_bytes;
    return batch * MOST <= ROOM ? MOST : batch * 2 <= ROOM ? 2 : 1;
}

static dlc_status alloc_slot(const dlc_feed *feed, size_t count, slot *made) {
    const dlc_feed_args *args = &feed->args;
    size_t bytes, all, label_bytes = (count * sizeof(int32_t) + LINE - 1) & -LINE;
    if (!args->device_ops) {
        made->data = dlc_alloc(count, feed->out_bytes);
        made->labels = dlc_alloc(count, sizeof(int32_t));
        return made->data && made->labels ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (__builtin_mul_overflow(count, feed->out_bytes, &bytes) ||
        __builtin_add_overflow(bytes, label_bytes, &all))
        return dlc_fail(DLC_ERR_NOMEM, "a batch of %zu samples is too large", count);
    made->memory.size = sizeof made->memory;
    DLC_TRY(args->device_ops->alloc(args->device, all, DLC_MEM_STAGING, &made->memory));
    /* Labels first: after bytes they might not be aligned. */
    made->labels = made->memory.base;
    made->data = (char *)made->memory.base + label_bytes;
    return DLC_OK;
}

static void free_slot(const dlc_feed *feed, slot *made) {
    const dlc_feed_args *args = &feed->args;
    if (!args->device_ops) {
        dlc_free(made->labels);
        dlc_free(made->data);
    } else if (made->memory.base) {
        args->device_ops->free(args->device, &made->memory);
    }
}

static dlc_status alloc_slots(dlc_feed *feed) {
    size_t count = (size_t)feed->args.count;
    feed->slot_count = batches_ahead(feed) + 1; /* the caller holds one */
    feed->slots = dlc_alloc((size_t)feed->slot_count, sizeof *feed->slots);
    feed->index = dlc_alloc(count, sizeof *feed->index);
    if (!feed->as_read)
        feed->in = dlc_alloc(count, feed->in_bytes);
    if (!feed->slots || !feed->index || (!feed->in && !feed->as_read))
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < feed->slot_count; i++)
        DLC_TRY(alloc_slot(feed, count, &feed->slots[i]));
    return DLC_OK;
}

static dlc_status start_thread(dlc_feed *feed) {
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->room, NULL);
    pthread_cond_init(&feed->done, NULL);
    feed->has_lock = 1;
    DLC_TRY(dlc_thread_pool_open(feed->args.threads, &feed->pool));
    DLC_TRY(dlc_thread_start(&feed->thread, "dlc-feed", read_ahead, feed));
    feed->has_thread = 1;
    return DLC_OK;
}

static dlc_status prepare(dlc_feed *feed) {
    const dlc_feed_args *args = &feed->args;
    DLC_TRY(choose_format(feed));
    if (args->test) {
        feed->begin = feed->info.samples * args->rank / args->ranks;
        feed->end = feed->info.samples * (args->rank + 1) / args->ranks;
        feed->batches = (feed->end - feed->begin + args->count - 1) / args->count;
        if (!feed->batches)
            return DLC_OK; /* this rank has nothing to read */
    } else {
        DLC_TRY(dlc_order_open(feed->info.samples, args->seed, args->shuffle,
                               &feed->order));
    }
    DLC_TRY(alloc_slots(feed));
    return start_thread(feed);
}

dlc_status dlc_feed_bytes(const dlc_feed_args *args, uint64_t *bytes, uint64_t *batch) {
    dlc_feed feed = {.args = *args};
    DLC_TRY(check_args(args));
    DLC_TRY(choose_format(&feed));
    uint64_t count = (uint64_t)args->count;
    *batch = count * (feed.out_bytes + sizeof(int32_t));
    *bytes = ((uint64_t)batches_ahead(&feed) + 1) * *batch;
    if (!feed.as_read)
        *bytes += count * feed.in_bytes;
    if (args->shuffle && !args->test)
        *bytes += (uint64_t)feed.info.samples * sizeof *feed.order.map;
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
        pthread_mutex_destroy(&feed->lock);
    }
    for (int32_t i = 0; feed->slots && i < feed->slot_count; i++)
        free_slot(feed, &feed->slots[i]);
    dlc_free(feed->slots);
    dlc_free(feed->in);
    dlc_free(feed->index);
    dlc_order_close(&feed->order);
    dlc_free(feed);
}

/* ---- Calls ----------------------------------------------------------------- */

dlc_shape dlc_feed_shape(const dlc_feed *feed) {
    return feed->shape;
}

dlc_dtype dlc_feed_dtype(const dlc_feed *feed) {
    return feed->dtype;
}

const dlc_augment *dlc_feed_augment(const dlc_feed *feed) {
    return &feed->args.augment;
}

int64_t dlc_feed_samples(const dlc_feed *feed) {
    return feed->info.samples;
}

int64_t dlc_feed_batches(const dlc_feed *feed) {
    return feed->batches;
}

static dlc_status no_samples(const dlc_feed *feed) {
    return dlc_fail(DLC_ERR_INTERNAL, "feed: rank %d of %d has no samples to read",
                    feed->args.rank, feed->args.ranks);
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
    while (!feed->ready && feed->status == DLC_OK)
        pthread_cond_wait(&feed->done, &feed->lock);
    if (feed->ready) {
        const slot *from = &feed->slots[feed->first];
        feed->ready--;
        feed->held = 1;
        feed->delivered = successor(feed, from->iteration);
        *batch = (dlc_batch){.data = from->data,
                             .labels = from->labels,
                             .samples = from->samples,
                             .iteration = from->iteration};
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
