/* The device's operations: each checks where its memory is, and gives the cpu's own
 * operation to the queue. */
#include <string.h>
#include <time.h>

#include "later.h"

const dlc_device_ops *near_device;

const dlc_option device_options[] = {
    DLC_INT("later_seed", "1", 0, 1e9, "seed of the pauses"),
    DLC_INT("later_us", "200", 0, 1e6, "longest pause before a piece of work"),
    DLC_BOOL("later_words", "yes", "queues wait for words that processes share"),
    DLC_OPTIONS_END,
};

dlc_status need_far(const char *call, const void *address) {
    if (!address || is_far(address))
        return DLC_OK;
    return host->fail(DLC_ERR_DEVICE, "%s: %p is no memory of device later", call,
                      address);
}

/* ---- Opening, memory --------------------------------------------------------- */

static dlc_status device_open(const dlc_device_args *args, dlc_device **device) {
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_device_args near = *args;
    near.settings = NULL;
    near.cpus = NULL; /* its work is another thread's than the one that opens it */
    dlc_status status = near_device->open(&near, &made->near);
    if (status != DLC_OK) {
        host->free(made);
        return status;
    }
    made->threads = args->threads > 1 ? args->threads : 1;
    made->seed = 1;
    made->pause_us = 200;
    made->words = 1;
    if (args->settings) {
        made->seed = (uint64_t)host->get_int(args->settings, "later_seed");
        made->pause_us = host->get_int(args->settings, "later_us");
        made->words = host->get_bool(args->settings, "later_words");
    }
    *device = made;
    return DLC_OK;
}

static void device_close(dlc_device *device) {
    if (!device)
        return;
    near_device->close(device->near);
    host->free(device);
}

static dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                               dlc_memory *memory) {
    dlc_status status = must_not_record("alloc");
    if (status == DLC_OK)
        status = near_device->alloc(device->near, bytes, flags, memory);
    if (status == DLC_OK && !(flags & DLC_MEM_STAGING))
        memory->base = to_far(memory->base);
    return status;
}

static dlc_memory near_memory(const dlc_memory *memory) {
    dlc_memory near = *memory;
    near.base = to_near(near.base);
    return near;
}

static void device_free(dlc_device *device, dlc_memory *memory) {
    *memory = near_memory(memory);
    near_device->free(device->near, memory);
}

static dlc_status device_export(dlc_device *device, const dlc_memory *memory,
                                dlc_share *share) {
    dlc_memory near = near_memory(memory);
    return near_device->share_export(device->near, &near, share);
}

static dlc_status device_import(dlc_device *device, const dlc_share *share,
                                dlc_memory *memory) {
    dlc_status status = near_device->share_import(device->near, share, memory);
    if (status == DLC_OK)
        memory->base = to_far(memory->base);
    return status;
}

/* ---- Kernels ----------------------------------------------------------------- */

/* The arguments of most of them, addresses made near. */
typedef struct kernel {
    dlc_device *near;
    size_t n;
    float alpha;
    int32_t number; /* a byte, a patience */
    dlc_dtype from, to;
    const void *x;
    void *y;
} kernel;

/* NULL: where it need not be device memory. */
static dlc_status give(dlc_queue *queue, const char *call, work_fn *run,
                       const kernel *k) {
    dlc_status status = call ? need_far(call, k->x) : DLC_OK;
    if (status == DLC_OK && call)
        status = need_far(call, k->y);
    if (status != DLC_OK)
        return status;
    kernel near = *k;
    near.near = k->near->near;
    near.x = to_near(k->x);
    near.y = to_near(k->y);
    return work_give(queue, run, &near, sizeof near);
}

static dlc_status run_copy(const void *args) {
    const kernel *k = args;
    return near_device->copy(k->near, NULL, k->y, k->x, k->n);
}

static dlc_status device_copy(dlc_device *device, dlc_queue *queue, void *dst,
                              const void *src, size_t bytes) {
    return give(queue, NULL, run_copy,
                &(kernel){.near = device, .n = bytes, .x = src, .y = dst});
}

static dlc_status run_fill(const void *args) {
    const kernel *k = args;
    return near_device->fill(k->near, NULL, k->y, k->number, k->n);
}

static dlc_status device_fill_(dlc_device *device, dlc_queue *queue, void *dst,
                               int byte, size_t bytes) {
    return give(queue, "fill", run_fill,
                &(kernel){.near = device, .n = bytes, .number = byte, .y = dst});
}

static dlc_status run_scale(const void *args) {
    const kernel *k = args;
    return near_device->scale(k->near, NULL, k->n, k->alpha, k->y);
}

static dlc_status device_scale(dlc_device *device, dlc_queue *queue, size_t n,
                               float alpha, float *x) {
    return give(queue, "scale", run_scale,
                &(kernel){.near = device, .n = n, .alpha = alpha, .y = x});
}

static dlc_status run_add(const void *args) {
    const kernel *k = args;
    return near_device->add(k->near, NULL, k->n, k->x, k->y);
}

static dlc_status device_add(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *x, float *y) {
    return give(queue, "add", run_add,
                &(kernel){.near = device, .n = n, .x = x, .y = y});
}

static dlc_status run_add_bf16(const void *args) {
    const kernel *k = args;
    return near_device->add_bf16(k->near, NULL, k->n, k->x, k->y);
}

static dlc_status device_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                                  const uint16_t *x, uint16_t *y) {
    return give(queue, "add_bf16", run_add_bf16,
                &(kernel){.near = device, .n = n, .x = x, .y = y});
}

static dlc_status run_add_f16(const void *args) {
    const kernel *k = args;
    return near_device->add_f16(k->near, NULL, k->n, k->x, k->y);
}

static dlc_status device_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                                 const uint16_t *x, uint16_t *y) {
    return give(queue, "add_f16", run_add_f16,
                &(kernel){.near = device, .n = n, .x = x, .y = y});
}

static dlc_status run_axpy(const void *args) {
    const kernel *k = args;
    return near_device->axpy(k->near, NULL, k->n, k->alpha, k->x, k->y);
}

static dlc_status device_axpy(dlc_device *device, dlc_queue *queue, size_t n,
                              float alpha, const float *x, float *y) {
    return give(queue, "axpy", run_axpy,
                &(kernel){.near = device, .n = n, .alpha = alpha, .x = x, .y = y});
}

static dlc_status run_add_mean(const void *args) {
    const kernel *k = args;
    return near_device->add_mean(k->near, NULL, k->alpha, k->x, k->y);
}

static dlc_status device_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                                  const float *x, float *y) {
    return give(queue, "add_mean", run_add_mean,
                &(kernel){.near = device, .alpha = alpha, .x = x, .y = y});
}

static dlc_status run_adapt_scale(const void *args) {
    const kernel *k = args;
    return near_device->adapt_scale(k->near, NULL, k->n, k->x, k->number, k->y);
}

static dlc_status device_adapt_scale(dlc_device *device, dlc_queue *queue, size_t n,
                                     const float *gradients, int32_t patience,
                                     dlc_loss_scale *scale) {
    return give(
        queue, "adapt_scale", run_adapt_scale,
        &(kernel){
            .near = device, .n = n, .number = patience, .x = gradients, .y = scale});
}

static dlc_status run_convert(const void *args) {
    const kernel *k = args;
    return near_device->convert(k->near, NULL, k->n, k->from, k->x, k->to, k->y);
}

static dlc_status device_convert(dlc_device *device, dlc_queue *queue, size_t n,
                                 dlc_dtype from, const void *src, dlc_dtype to,
                                 void *dst) {
    return give(
        queue, "convert", run_convert,
        &(kernel){.near = device, .n = n, .from = from, .to = to, .x = src, .y = dst});
}

/* ---- Those with arguments of their own --------------------------------------- */

/* The addresses stand behind it: sources, then destinations. */
typedef struct sum_args {
    dlc_device *near;
    size_t n;
    int32_t count, dst_count;
    void *at[];
} sum_args;

static dlc_status run_sum(const void *args) {
    const sum_args *s = args;
    const float *const *sources = (const float *const *)(const void *)s->at;
    float *const *dsts = (float *const *)(const void *)(s->at + s->count);
    if (near_device->sum_to)
        return near_device->sum_to(s->near, NULL, s->n, sources, s->count, dsts,
                                   s->dst_count);
    return near_device->sum(s->near, NULL, s->n, sources, s->count, dsts[0]);
}

static dlc_status device_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                                const float *const *sources, int32_t count,
                                float *const *dsts, int32_t dst_count) {
    if (count < 1 || dst_count < 1)
        return host->fail(DLC_ERR_CONFIG, "sum of %d sources to %d destinations", count,
                          dst_count);
    size_t all = (size_t)count + (size_t)dst_count;
    size_t bytes = sizeof(sum_args) + all * sizeof(void *);
    sum_args *s = host->alloc(bytes);
    if (!s)
        return DLC_ERR_NOMEM;
    *s = (sum_args){
        .near = device->near, .n = n, .count = count, .dst_count = dst_count};
    dlc_status status = DLC_OK;
    for (int32_t i = 0; status == DLC_OK && i < count + dst_count; i++) {
        const void *at = i < count ? (const void *)sources[i] : dsts[i - count];
        status = need_far("sum", at);
        s->at[i] = to_near(at);
    }
    if (status == DLC_OK)
        status = work_give(queue, run_sum, s, bytes);
    host->free(s);
    return status;
}

static dlc_status device_sum(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count, float *dst) {
    return device_sum_to(device, queue, n, sources, count, &dst, 1);
}

typedef struct norm_args {
    dlc_device *near;
    size_t n;
    const float *x;
    double *result;
} norm_args;

static dlc_status run_norm2(const void *args) {
    const norm_args *a = args;
    return near_device->norm2(a->near, NULL, a->n, a->x, a->result);
}

static dlc_status device_norm2(dlc_device *device, dlc_queue *queue, size_t n,
                               const float *x, double *result) {
    norm_args args = {device->near, n, to_near(x), result};
    dlc_status status = must_not_record("norm2");
    if (status == DLC_OK)
        status = need_far("norm2", x);
    if (status == DLC_OK)
        status = work_give(queue, run_norm2, &args, sizeof args);
    return status == DLC_OK ? queue_sync(device, queue) : status;
}

typedef struct momentum_args {
    dlc_device *near;
    size_t n;
    dlc_momentum how;
    const float *gradient;
    float *velocity, *weight;
} momentum_args;

static dlc_status run_momentum(const void *args) {
    const momentum_args *a = args;
    return near_device->momentum(a->near, NULL, a->n, &a->how, a->gradient, a->velocity,
                                 a->weight);
}

static dlc_status device_momentum(dlc_device *device, dlc_queue *queue, size_t n,
                                  const dlc_momentum *how, const float *gradient,
                                  float *velocity, float *weight) {
    momentum_args args = {.near = device->near,
                          .n = n,
                          .gradient = to_near(gradient),
                          .velocity = to_near(velocity),
                          .weight = to_near(weight)};
    memcpy(&args.how, how, how->size < sizeof *how ? how->size : sizeof *how);
    const void *all[] = {gradient, velocity, weight, args.how.rate_at,
                         args.how.loss_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        dlc_status status = need_far("momentum", all[i]);
        if (status != DLC_OK)
            return status;
    }
    args.how.size = sizeof args.how;
    args.how.rate_at = to_near(args.how.rate_at);
    args.how.loss_scale = to_near(args.how.loss_scale);
    return work_give(queue, run_momentum, &args, sizeof args);
}

typedef struct normalize_args {
    dlc_device *near;
    size_t n, plane, channels;
    const uint8_t *src;
    const float *mean;
    float scale, *dst;
} normalize_args;

static dlc_status run_normalize(const void *args) {
    const normalize_args *a = args;
    return near_device->normalize(a->near, NULL, a->n, a->plane, a->channels, a->src,
                                  a->mean, a->scale, a->dst);
}

static dlc_status device_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                                   size_t plane, size_t channels, const uint8_t *src,
                                   const float *mean, float scale, float *dst) {
    const void *all[] = {src, mean, dst};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        dlc_status status = need_far("normalize", all[i]);
        if (status != DLC_OK)
            return status;
    }
    normalize_args args = {.near = device->near,
                           .n = n,
                           .plane = plane,
                           .channels = channels,
                           .src = to_near(src),
                           .mean = to_near(mean),
                           .scale = scale,
                           .dst = to_near(dst)};
    return work_give(queue, run_normalize, &args, sizeof args);
}

/* ---- Words that processes share: they wait without the lock ------------------ */

typedef struct words_args {
    int32_t count;
    dlc_word_step step[];
} words_args;

static int has_come(const dlc_word_step *s) {
    return (int32_t)(__atomic_load_n(s->word, __ATOMIC_SEQ_CST) - s->value) >= 0;
}

static dlc_status run_words(const void *args) {
    const struct timespec nap = {.tv_nsec = 20000};
    const words_args *w = args;
    for (int32_t i = 0; i < w->count; i++) {
        const dlc_word_step *s = &w->step[i];
        if (s->kind == DLC_WORD_WRITE)
            __atomic_store_n(s->word, s->value, __ATOMIC_SEQ_CST);
        while (s->kind == DLC_WORD_WAIT && !has_come(s))
            (void)nanosleep(&nap, NULL);
    }
    return DLC_OK;
}

static dlc_status device_words(dlc_device *device, dlc_queue *queue,
                               const dlc_word_step *steps, int32_t count) {
    if (!device->words)
        return host->fail(DLC_ERR_UNSUPPORTED, "words are switched off (later_words)");
    if (count < 1)
        return DLC_OK;
    size_t bytes = sizeof(words_args) + (size_t)count * sizeof *steps;
    words_args *w = host->alloc(bytes);
    if (!w)
        return DLC_ERR_NOMEM;
    w->count = count;
    for (int32_t i = 0; i < count; i++) {
        w->step[i] = steps[i];
        w->step[i].word = to_near(steps[i].word);
    }
    dlc_status status = work_give(queue, run_words, w, bytes);
    host->free(w);
    return status;
}

/* ---- The table --------------------------------------------------------------- */

dlc_device_ops device_ops = {
    .size = sizeof device_ops,
    .open = device_open,
    .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .copy = device_copy,
    .fill = device_fill_,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .queue_sync = queue_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .scale = device_scale,
    .add = device_add,
    .axpy = device_axpy,
    .convert = device_convert,
    .sum = device_sum,
    .norm2 = device_norm2,
    .momentum = device_momentum,
    .share_export = device_export,
    .share_import = device_import,
    .sum_to = device_sum_to,
    .event_sync = event_sync,
    .record_begin = record_begin,
    .record_end = record_end,
    .record_run = record_run,
    .record_close = record_close,
    .queue_words = device_words,
};

void device_fill(const dlc_device_ops *near) {
    near_device = near;
    device_ops.count = near->count;
    device_ops.describe = near->describe;
    device_ops.add_bf16 = DLC_CAN(near, add_bf16) ? device_add_bf16 : NULL;
    device_ops.add_f16 = DLC_CAN(near, add_f16) ? device_add_f16 : NULL;
    device_ops.add_mean = DLC_CAN(near, add_mean) ? device_add_mean : NULL;
    device_ops.adapt_scale = DLC_CAN(near, adapt_scale) ? device_adapt_scale : NULL;
    device_ops.normalize = DLC_CAN(near, normalize) ? device_normalize : NULL;
}
