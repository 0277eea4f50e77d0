/* The device's compute calls: run the loops of kernels.c on the threads.
 *
 * Up to SERIAL elements are processed on the calling thread; more go to exactly
 * `threads` threads, always the same number: libgomp ends threads when a team shrinks
 * and starts new ones when it grows. Called on the thread that runs the layers, this
 * uses the same thread pool as their library.
 */
#include <string.h>

#include "cpu.h"

enum { SERIAL = 16384, LINE = 16 /* floats of a cache line */ };

/* Calls fn on [0, n), cut into one range per thread at multiples of a cache line. */
static void parallel_for(const dlc_device *device, size_t n, range_fn *fn,
                         const void *job) {
    if (n > SERIAL)
        threads_parallel_for(device, n, LINE, fn, job);
    else if (n > 0)
        fn(job, 0, n);
}

typedef struct vectors {
    float alpha;
    const float *x;
    float *y;
} vectors;

static void range_scale(const void *job, size_t begin, size_t end) {
    const vectors *v = job;
    kernel_scale(end - begin, v->alpha, v->y + begin);
}

dlc_status compute_scale(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                         float *x) {
    (void)queue;
    parallel_for(device, n, range_scale, &(vectors){alpha, NULL, x});
    return DLC_OK;
}

static void range_add(const void *job, size_t begin, size_t end) {
    const vectors *v = job;
    kernel_add(end - begin, v->x + begin, v->y + begin);
}

dlc_status compute_add(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                       float *y) {
    (void)queue;
    parallel_for(device, n, range_add, &(vectors){1.0f, x, y});
    return DLC_OK;
}

typedef struct halves {
    const uint16_t *x;
    uint16_t *y;
} halves;

static void range_add_bf16(const void *job, size_t begin, size_t end) {
    const halves *h = job;
    kernel_add_bf16(end - begin, h->x + begin, h->y + begin);
}

dlc_status compute_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                            const uint16_t *x, uint16_t *y) {
    (void)queue;
    parallel_for(device, n, range_add_bf16, &(halves){x, y});
    return DLC_OK;
}

static void range_add_f16(const void *job, size_t begin, size_t end) {
    const halves *h = job;
    convert_add_f16(end - begin, h->x + begin, h->y + begin);
}

dlc_status compute_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                           const uint16_t *x, uint16_t *y) {
    (void)queue;
    parallel_for(device, n, range_add_f16, &(halves){x, y});
    return DLC_OK;
}

dlc_status compute_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                            const float *x, float *y) {
    (void)device;
    (void)queue;
    if (x[1] != 0.0f)
        *y += alpha * x[0] / x[1];
    return DLC_OK;
}

static void range_axpy(const void *job, size_t begin, size_t end) {
    const vectors *v = job;
    kernel_axpy(end - begin, v->alpha, v->x + begin, v->y + begin);
}

dlc_status compute_axpy(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                        const float *x, float *y) {
    (void)queue;
    parallel_for(device, n, range_axpy, &(vectors){alpha, x, y});
    return DLC_OK;
}

typedef struct summands {
    const float *const *sources;
    int32_t count;
    float *dst;
} summands;

static void range_sum(const void *job, size_t begin, size_t end) {
    const summands *s = job;
    kernel_sum(begin, end, s->sources, s->count, s->dst);
}

dlc_status compute_sum(dlc_device *device, dlc_queue *queue, size_t n,
                       const float *const *sources, int32_t count, float *dst) {
    (void)queue;
    if (count < 1)
        return host->fail(DLC_ERR_CONFIG, "sum of %d sources: give at least one",
                          count);
    parallel_for(device, n, range_sum, &(summands){sources, count, dst});
    return DLC_OK;
}

typedef struct sum_targets {
    const float *const *sources;
    int32_t count, dst_count;
    float *const *dsts;
} sum_targets;

static void range_sum_to(const void *job, size_t begin, size_t end) {
    const sum_targets *s = job;
    kernel_sum_to(begin, end, s->sources, s->count, s->dsts, s->dst_count);
}

dlc_status compute_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                          const float *const *sources, int32_t count,
                          float *const *dsts, int32_t dst_count) {
    (void)queue;
    if (count < 1 || dst_count < 1)
        return host->fail(DLC_ERR_CONFIG,
                          "sum of %d sources to %d destinations: give at least one",
                          count, dst_count);
    parallel_for(device, n, range_sum_to,
                 &(sum_targets){sources, count, dst_count, dsts});
    return DLC_OK;
}

typedef struct rule_job {
    const dlc_rule *rule;
    dlc_rule_step step;
    const float *const *gradients;
    int32_t count, weight_count;
    float *const *slots, *const *weights;
} rule_job;

static void range_update(const void *job, size_t begin, size_t end) {
    const rule_job *j = job;
    kernel_update(begin, end, j->rule, &j->step, j->gradients[0] + begin, j->slots,
                  j->weights[0]);
}

dlc_status compute_update(dlc_device *device, dlc_queue *queue, size_t n,
                          const dlc_update *update, const float *gradient,
                          float *const *slots, float *weight) {
    rule_job job = {.rule = update->rule,
                    .gradients = &gradient,
                    .slots = slots,
                    .weights = &weight};
    (void)queue;
    if (dlc_rule_step_make(update, &job.step))
        parallel_for(device, n, range_update, &job);
    return DLC_OK;
}

static void range_update_to(const void *job, size_t begin, size_t end) {
    const rule_job *j = job;
    kernel_update_to(begin, end, j->rule, &j->step, j->gradients, j->count, j->slots,
                     j->weights, j->weight_count);
}

dlc_status compute_update_to(dlc_device *device, dlc_queue *queue, size_t n,
                             const dlc_update *update, const float *const *gradients,
                             int32_t count, float *const *slots, float *const *weights,
                             int32_t weight_count) {
    rule_job job = {.rule = update->rule,
                    .gradients = gradients,
                    .count = count,
                    .weight_count = weight_count,
                    .slots = slots,
                    .weights = weights};
    (void)queue;
    if (count < 1 || weight_count < 1)
        return host->fail(DLC_ERR_CONFIG,
                          "an update of %d gradients for %d weights: give at least one",
                          count, weight_count);
    if (dlc_rule_step_make(update, &job.step))
        parallel_for(device, n, range_update_to, &job);
    return DLC_OK;
}

typedef struct squares {
    size_t n;
    const float *x;
    double *sums;
} squares;

static void range_squares(const void *job, size_t begin, size_t end) {
    const squares *s = job;
    for (size_t i = begin; i < end; i++) {
        size_t at = i * DLC_SQUARE_PIECE, left = s->n - at;
        s->sums[i] = kernel_squares(left < DLC_SQUARE_PIECE ? left : DLC_SQUARE_PIECE,
                                    s->x + at);
    }
}

dlc_status compute_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                               const float *x, double *sums) {
    size_t pieces = (n + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
    squares job = {n, x, sums};
    (void)queue;
    if (n > SERIAL)
        threads_parallel_for(device, pieces, 1, range_squares, &job);
    else
        range_squares(&job, 0, pieces);
    return DLC_OK;
}

dlc_status compute_total(dlc_device *device, dlc_queue *queue, size_t n,
                         const double *sums, double *total) {
    (void)device;
    (void)queue;
    *total = kernel_total(n, sums);
    return DLC_OK;
}

/* See Micikevicius et al. 2018, section 3.2. */
dlc_status compute_update_loss_scale(dlc_device *device, dlc_queue *queue,
                                     const double *square, int32_t growth_interval,
                                     dlc_loss_scale *scale) {
    static const float least = 1.0f, most = 0x1p24f;
    (void)device;
    (void)queue;
    scale->inverse = 1.0f / scale->scale;
    scale->overflow = !isfinite(*square);
    if (scale->overflow) {
        scale->scale = scale->scale / 2 > least ? scale->scale / 2 : least;
        scale->good_iterations = 0;
        scale->skipped++;
    } else if (++scale->good_iterations >= growth_interval) {
        scale->scale = scale->scale * 2 < most ? scale->scale * 2 : most;
        scale->good_iterations = 0;
    }
    return DLC_OK;
}

typedef struct conversion {
    convert_fn *convert;
    const char *src;
    char *dst;
    size_t src_size, dst_size; /* bytes of an element */
} conversion;

static void range_convert(const void *job, size_t begin, size_t end) {
    const conversion *c = job;
    c->convert(end - begin, c->src + begin * c->src_size, c->dst + begin * c->dst_size);
}

dlc_status compute_convert(dlc_device *device, dlc_queue *queue, size_t n,
                           dlc_dtype from, const void *src, dlc_dtype to, void *dst) {
    if (from == to && dlc_dtype_bytes(from) > 0)
        return compute_copy(device, queue, dst, src, n * dlc_dtype_bytes(from));
    conversion job = {convert_find(from, to), src, dst, dlc_dtype_bytes(from),
                      dlc_dtype_bytes(to)};
    if (!job.convert)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the cpu device does not convert type %d to type %d: convert "
                          "to float32 first",
                          (int)from, (int)to);
    parallel_for(device, n, range_convert, &job);
    return DLC_OK;
}

typedef struct pixels {
    size_t plane, channels;
    const uint8_t *src;
    const float *mean, *scale;
    float *dst;
} pixels;

/* Plane by plane; a range may begin and end inside a plane. */
static void range_normalize(const void *job, size_t begin, size_t end) {
    const pixels *p = job;
    for (size_t at = begin, next; at < end; at = next) {
        size_t number = at / p->plane;
        next = (number + 1) * p->plane;
        next = next < end ? next : end;
        size_t channel = number % p->channels;
        kernel_normalize(next - at, p->src + at, p->mean[channel], p->scale[channel],
                         p->dst + at);
    }
}

dlc_status compute_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                             size_t plane, size_t channels, const uint8_t *src,
                             const float *mean, const float *scale, float *dst) {
    (void)queue;
    parallel_for(device, n, range_normalize,
                 &(pixels){plane, channels, src, mean, scale, dst});
    return DLC_OK;
}

typedef struct bytes_job {
    unsigned char *dst;
    const unsigned char *src; /* NULL: fill with `byte` */
    int byte;
    size_t bytes;
} bytes_job;

/* Counts in floats, so that SERIAL means the same as for the kernels. */
static void range_bytes(const void *job, size_t begin, size_t end) {
    const bytes_job *b = job;
    size_t from = begin * sizeof(float), to = end * sizeof(float);
    to = to < b->bytes ? to : b->bytes;
    if (b->src)
        memcpy(b->dst + from, b->src + from, to - from);
    else
        memset(b->dst + from, b->byte, to - from);
}

static size_t in_floats(size_t bytes) {
    return bytes / sizeof(float) + (bytes % sizeof(float) > 0);
}

dlc_status compute_copy(dlc_device *device, dlc_queue *queue, void *dst,
                        const void *src, size_t bytes) {
    (void)queue;
    if (dst != src)
        parallel_for(device, in_floats(bytes), range_bytes,
                     &(bytes_job){dst, src, 0, bytes});
    return DLC_OK;
}

dlc_status compute_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                        size_t bytes) {
    (void)queue;
    parallel_for(device, in_floats(bytes), range_bytes,
                 &(bytes_job){dst, NULL, byte, bytes});
    return DLC_OK;
}
