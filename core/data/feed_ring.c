/* The feed's ring of batches and the thread that fills it. Slots `first` .. `first +
 * held + ready - 1` are in use, of which the oldest belongs to the caller while `held`
 * is 1; the thread fills those that follow while there is room. A seek drops what is
 * ready and, by a new generation, what is being filled. */
#include "data/feed_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/feed.h"
#include "data/order.h"
#include "plugin/device_objects.h"

/* ---- Opening --------------------------------------------------------------- */

static dlc_status check_feed_args(const dlc_feed_args *args) {
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
                             .min_visibility = args->min_visibility,
                             .fields = args->fields};
}

static dlc_status open_feed_loader(dlc_feed *feed) {
    dlc_loader_args args = dlc_feed_loader_args(&feed->args);
    return dlc_loader_open(&args, &feed->loader);
}

/* The threads that load samples, the reading one among them. */
static size_t loading_threads(const dlc_feed *feed) {
    return feed->args.threads > 1 ? (size_t)feed->args.threads : 1;
}

/* Enough batches to hide a source that is slow at times, unless they are huge. */
static int32_t batches_ready(const dlc_feed *feed) {
    enum { MOST = 3, ROOM = 32 << 20 };
    if (feed->args.prefetch)
        return feed->args.prefetch;
    if (feed->args.low_memory)
        return 0;
    double batch = (double)feed->args.count * (double)feed->loader.bytes;
    return batch * MOST <= ROOM ? MOST : batch * 2 <= ROOM ? 2 : 1;
}

/* Batches to keep ready. */
static int32_t batches_ahead(const dlc_feed *feed) {
    int32_t ready = batches_ready(feed);
    return ready > feed->args.ahead ? ready : feed->args.ahead;
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
    DLC_TRY(dlc_device_alloc(args->device_ops, args->device, feed->layout.bytes,
                             DLC_MEM_STAGING, &made->memory));
    made->base = made->memory.base;
    return DLC_OK;
}

static void free_feed_slot(const dlc_feed *feed, slot *made) {
    const dlc_feed_args *args = &feed->args;
    if (!args->device_ops)
        dlc_free(made->base);
    else
        dlc_device_free(args->device_ops, args->device, &made->memory);
    dlc_free(made->labels);
}

static void free_filling(filling *f) {
    if (f->index)
        pthread_mutex_destroy(&f->failure.lock);
    dlc_free(f->partner);
    dlc_free(f->index);
}

/* Memory of pairs that are not whole in a batch. */
static dlc_status alloc_mixed(dlc_feed *feed) {
    if (feed->args.test || !dlc_mix_is_on(&feed->args.mix))
        return DLC_OK;
    DLC_TRY(dlc_mix_check(&feed->args.mix, &feed->loader));
    DLC_TRY(dlc_batch_layout_make(&feed->loader, 1, &feed->mixed_layout));
    for (int i = 0; i < DLC_FEED_FILLINGS; i++) {
        filling *f = &feed->filling[i];
        f->partner = dlc_alloc((size_t)feed->args.count, sizeof *f->partner);
        if (!f->partner)
            return DLC_ERR_NOMEM;
    }
    feed->mixed = dlc_alloc(loading_threads(feed), feed->mixed_layout.bytes);
    return feed->mixed ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status alloc_fillings(dlc_feed *feed) {
    for (int i = 0; i < DLC_FEED_FILLINGS; i++) {
        filling *f = &feed->filling[i];
        f->feed = feed;
        f->index = dlc_alloc((size_t)feed->args.count, sizeof *f->index);
        if (!f->index)
            return DLC_ERR_NOMEM;
        pthread_mutex_init(&f->failure.lock, NULL);
    }
    return DLC_OK;
}

static dlc_status alloc_slots(dlc_feed *feed) {
    size_t count = (size_t)feed->args.count;
    feed->slot_count = batches_ahead(feed) + 1; /* the caller holds one */
    feed->slots = dlc_alloc((size_t)feed->slot_count, sizeof *feed->slots);
    feed->scratch = dlc_alloc(loading_threads(feed), sizeof *feed->scratch);
    if (!feed->slots || !feed->scratch)
        return DLC_ERR_NOMEM;
    DLC_TRY(alloc_fillings(feed));
    DLC_TRY(dlc_batch_layout_make(&feed->loader, count, &feed->layout));
    for (int32_t i = 0; i < feed->slot_count; i++)
        DLC_TRY(alloc_slot(feed, &feed->slots[i]));
    return alloc_mixed(feed);
}

static dlc_status start_reading(dlc_feed *feed) {
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->room, NULL);
    pthread_cond_init(&feed->done, NULL);
    feed->has_lock = 1;
    DLC_TRY(dlc_thread_pool_open(feed->args.threads, &feed->pool));
    DLC_TRY(dlc_thread_start(&feed->thread, "dlc-feed", dlc_feed_read, feed));
    feed->has_thread = 1;
    return DLC_OK;
}

/* The samples that this rank tests. */
static void choose_test(dlc_feed *feed) {
    const dlc_feed_args *args = &feed->args;
    int64_t samples = dlc_feed_test_samples(feed), step = dlc_feed_step(args);
    feed->begin = args->first +
                  (args->stride ? args->offset : samples * args->rank / args->ranks);
    feed->end = args->first +
                (args->stride ? samples : samples * (args->rank + 1) / args->ranks);
    int64_t tested = args->stride ? samples : feed->end - feed->begin;
    feed->batches = (tested + step - 1) / step;
}

static dlc_status prepare_feed(dlc_feed *feed) {
    const dlc_feed_args *args = &feed->args;
    DLC_TRY(open_feed_loader(feed));
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
    return start_reading(feed);
}

dlc_status dlc_feed_bytes(const dlc_feed_args *args, uint64_t *bytes, uint64_t *batch) {
    dlc_feed feed = {.args = *args};
    DLC_TRY(check_feed_args(args));
    DLC_TRY(open_feed_loader(&feed));
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
    DLC_TRY(check_feed_args(args));
    dlc_feed *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = prepare_feed(made);
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
        feed->generation++;
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
        free_feed_slot(feed, &feed->slots[i]);
    dlc_free(feed->slots);
    for (size_t i = 0; feed->scratch && i < loading_threads(feed); i++)
        dlc_load_scratch_free(&feed->scratch[i]);
    dlc_free(feed->scratch);
    dlc_free(feed->mixed);
    for (int i = 0; i < DLC_FEED_FILLINGS; i++)
        free_filling(&feed->filling[i]);
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

int dlc_feed_skipped(dlc_feed *feed, int64_t index) {
    return dlc_skips_have(&feed->skips, index);
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

/* Waits for so many batches or an error; the lock is held. */
static void wait_until_ready(dlc_feed *feed, int32_t batches) {
    if (feed->ready >= batches || feed->status != DLC_OK)
        return;
    uint64_t begin = dlc_now_ns();
    while (feed->ready < batches && feed->status == DLC_OK)
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
    wait_until_ready(feed, 1);
    if (feed->ready) {
        const slot *from = &feed->slots[feed->first];
        feed->ready--;
        feed->held = 1;
        feed->delivered = dlc_feed_successor(feed, from->iteration);
        hand_over(feed, from, batch);
    } else {
        status = dlc_fail(feed->status, "%s", feed->detail);
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

dlc_status dlc_feed_peek(dlc_feed *feed, int64_t iteration, dlc_batch *batch) {
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&feed->lock);
    int64_t later = iteration - feed->delivered;
    if (later < 0 || feed->held + later >= feed->slot_count) {
        status = dlc_fail(DLC_ERR_INTERNAL, "feed: batch %lld is not kept",
                          (long long)iteration);
    } else {
        wait_until_ready(feed, (int32_t)later + 1);
        if (feed->ready > later)
            hand_over(feed,
                      &feed->slots[(feed->first + feed->held + (int32_t)later) %
                                   feed->slot_count],
                      batch);
        else
            status = dlc_fail(feed->status, "%s", feed->detail);
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

int dlc_feed_is_counted(const dlc_feed *feed, int32_t i) {
    const dlc_feed_args *args = &feed->args;
    return dlc_feed_position(args, 0, i) < args->batch;
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

/* ---- Values that are not finite ---------------------------------------------------
 */

/* For the report on a loss that is not. */

enum { NAME_BYTES = 512 };

/* An order of its own: the feed's belongs to the reading thread. */
static dlc_status name_sample(const dlc_feed *feed, int64_t position, char *name,
                              size_t room) {
    const dlc_feed_args *args = &feed->args;
    dlc_order order = {0};
    dlc_status status = dlc_order_open(dlc_feed_samples(feed), args->seed,
                                       args->shuffle, args->shuffle_window, &order);
    if (status == DLC_OK)
        dlc_samples_name(&feed->loader.samples, dlc_order_at(&order, position), name,
                         room);
    dlc_order_close(&order);
    return status;
}

static dlc_status describe_value(const dlc_feed *feed, int64_t position, int32_t i,
                                 int64_t at, float value, dlc_text *text) {
    const dlc_loaded_field *field = &feed->loader.field[i];
    char name[NAME_BYTES];
    DLC_TRY(name_sample(feed, position, name, sizeof name));
    dlc_text_add(text, "%s: value %" PRId64 " of field %s is %g as the net reads it",
                 name, at, field->field->name, (double)value);
    if (dlc_mix_is_on(&feed->args.mix))
        dlc_text_add(text, ", mixed with its neighbour");
    return dlc_text_status(text);
}

dlc_status dlc_feed_find_nonfinite(dlc_feed *feed, int64_t iteration, dlc_text *text) {
    dlc_batch batch;
    DLC_TRY(dlc_feed_seek(feed, iteration));
    DLC_TRY(dlc_feed_next(feed, &batch));
    // set with DLC_OK
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
    for (int32_t s = 0; s < batch.samples; s++)
        for (int32_t i = 0; i < feed->loader.fields; i++) {
            const dlc_loaded_field *field = &feed->loader.field[i];
            if (field->dtype != DLC_F32 || !field->field)
                continue;
            int64_t count = dlc_shape_count(&field->shape);
            const float *value = (const float *)batch.field[i] + s * count;
            /* NaN of what layers compare with is a value that does not count. */
            int64_t at = dlc_find_nonfinite(value, count, field->is_label);
            if (at >= 0)
                return describe_value(
                    feed, dlc_feed_position(&feed->args, iteration, s), i,
                    // a field that was read has values
                    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
                    at, value[at], text);
        }
    return DLC_OK;
}
