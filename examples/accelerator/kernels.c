/* Copies and kernels: each call checks its pointers and submits the work, which sees
 * device memory by `view`. Arrays of pointers and updates are the caller's, and are
 * copied. */
#include "accelerator.h"

#include <string.h>

enum { SOURCES = 64 };

/* The arguments of most kernels. */
typedef struct kernel {
    size_t n;
    float alpha;
    int byte;
    const void *x;
    void *y;
} kernel;

#define NEEDS_DEVICE(address) \
    do { \
        if (!is_device_memory(address)) \
            return host->fail(DLC_ERR_INTERNAL, "%s: %p is no memory of the device", \
                              __func__, (const void *)(address)); \
    } while (0)

/* ---- Copies ----------------------------------------------------------------- */

static dlc_status run_copy(const void *args) {
    const kernel *k = args;
    if (k->n > 0)
        memmove(k->y, k->x, k->n);
    return DLC_OK;
}

static dlc_status device_copy(dlc_device *device, dlc_queue *queue, void *dst,
                              const void *src, size_t bytes) {
    (void)device;
    const kernel k = {.n = bytes, .x = view(src), .y = view(dst)};
    return submit(queue, run_copy, &k, sizeof k);
}

static dlc_status run_fill(const void *args) {
    const kernel *k = args;
    if (k->n > 0)
        memset(k->y, k->byte, k->n);
    return DLC_OK;
}

static dlc_status device_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                              size_t bytes) {
    (void)device;
    NEEDS_DEVICE(dst);
    const kernel k = {.n = bytes, .byte = byte, .y = view(dst)};
    return submit(queue, run_fill, &k, sizeof k);
}

/* ---- Arithmetic ------------------------------------------------------------- */

static dlc_status run_scale(const void *args) {
    const kernel *k = args;
    float *y = k->y;
    for (size_t i = 0; i < k->n; i++)
        y[i] *= k->alpha;
    return DLC_OK;
}

static dlc_status device_scale(dlc_device *device, dlc_queue *queue, size_t n,
                               float alpha, float *x) {
    (void)device;
    NEEDS_DEVICE(x);
    const kernel k = {.n = n, .alpha = alpha, .y = view(x)};
    return submit(queue, run_scale, &k, sizeof k);
}

static dlc_status run_axpy(const void *args) {
    const kernel *k = args;
    const float *x = k->x;
    float *y = k->y;
    for (size_t i = 0; i < k->n; i++)
        y[i] += k->alpha * x[i];
    return DLC_OK;
}

static dlc_status device_axpy(dlc_device *device, dlc_queue *queue, size_t n,
                              float alpha, const float *x, float *y) {
    (void)device;
    NEEDS_DEVICE(x);
    NEEDS_DEVICE(y);
    const kernel k = {.n = n, .alpha = alpha, .x = view(x), .y = view(y)};
    return submit(queue, run_axpy, &k, sizeof k);
}

static dlc_status device_add(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *x, float *y) {
    return device_axpy(device, queue, n, 1, x, y);
}

static dlc_status run_convert(const void *args) {
    const kernel *k = args;
    const unsigned char *bytes = k->x;
    float *floats = k->y;
    for (size_t i = 0; i < k->n; i++)
        floats[i] = bytes[i];
    return DLC_OK;
}

static dlc_status device_convert(dlc_device *device, dlc_queue *queue, size_t n,
                                 dlc_dtype from, const void *src, dlc_dtype to,
                                 void *dst) {
    if (from == to)
        return device_copy(device, queue, dst, src, n * dlc_dtype_bytes(from));
    if (from != DLC_U8 || to != DLC_F32)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "accelerator does not convert type %d to %d", from, to);
    NEEDS_DEVICE(src);
    NEEDS_DEVICE(dst);
    const kernel k = {.n = n, .x = view(src), .y = view(dst)};
    return submit(queue, run_convert, &k, sizeof k);
}

typedef struct sum_call {
    size_t n;
    int32_t count;
    const float *sources[SOURCES];
    float *dst;
} sum_call;

/* The sum of element i of the sources [first, first + count): that of the first `half`
 * sources, where half is a power of two, plus that of the rest, each computed
 * likewise. */
static float pairwise(const sum_call *c, int32_t first, int32_t count, size_t i) {
    int32_t half = 1;
    if (count == 1)
        return c->sources[first][i];
    while (2 * half < count)
        half *= 2;
    return pairwise(c, first, half, i) + pairwise(c, first + half, count - half, i);
}

static dlc_status run_sum(const void *args) {
    const sum_call *c = args;
    for (size_t i = 0; i < c->n; i++)
        c->dst[i] = pairwise(c, 0, c->count, i);
    return DLC_OK;
}

static dlc_status device_sum(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count, float *dst) {
    (void)device;
    sum_call c = {.n = n, .count = count, .dst = view(dst)};
    NEEDS_DEVICE(dst);
    if (count > SOURCES)
        return host->fail(DLC_ERR_UNSUPPORTED, "accelerator adds up %d arrays at most",
                          SOURCES);
    for (int32_t i = 0; i < count; i++) {
        NEEDS_DEVICE(sources[i]);
        c.sources[i] = view(sources[i]);
    }
    return submit(queue, run_sum, &c, sizeof c);
}

static dlc_status run_square_sums(const void *args) {
    const kernel *k = args;
    const float *x = k->x;
    double *sums = k->y;
    for (size_t i = 0; i < k->n; i++) {
        double *sum = &sums[i / DLC_SQUARE_PIECE];
        double before = i % DLC_SQUARE_PIECE ? *sum : 0;
        *sum = before + (double)x[i] * (double)x[i];
    }
    return DLC_OK;
}

static dlc_status device_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                                     const float *x, double *sums) {
    (void)device;
    NEEDS_DEVICE(x);
    NEEDS_DEVICE(sums);
    const kernel k = {.n = n, .x = view(x), .y = view(sums)};
    return submit(queue, run_square_sums, &k, sizeof k);
}

static dlc_status run_total(const void *args) {
    const kernel *k = args;
    const double *sums = k->x;
    double total = 0;
    for (size_t i = 0; i < k->n; i++)
        total += sums[i];
    memcpy(k->y, &total, sizeof total);
    return DLC_OK;
}

static dlc_status device_total(dlc_device *device, dlc_queue *queue, size_t n,
                               const double *sums, double *total) {
    (void)device;
    NEEDS_DEVICE(sums);
    NEEDS_DEVICE(total);
    const kernel k = {.n = n, .x = view(sums), .y = view(total)};
    return submit(queue, run_total, &k, sizeof k);
}

static dlc_status run_add_mean(const void *args) {
    const kernel *k = args;
    const float *x = k->x;
    float *y = k->y;
    if (x[1] < 0 || x[1] > 0)
        *y += k->alpha * x[0] / x[1];
    return DLC_OK;
}

static dlc_status device_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                                  const float *x, float *y) {
    (void)device;
    NEEDS_DEVICE(x);
    NEEDS_DEVICE(y);
    const kernel k = {.alpha = alpha, .x = view(x), .y = view(y)};
    return submit(queue, run_add_mean, &k, sizeof k);
}

/* ---- Updates ---------------------------------------------------------------- */

typedef struct update_call {
    size_t n;
    dlc_update update;
    const float *gradient;
    float *slots[DLC_MAX_SLOTS];
    float *weight;
} update_call;

/* The values are read now, not when the update was submitted. A real accelerator cannot
 * run the rule's code for CPUs; it has code of its own for the rules that it knows, and
 * fails with DLC_ERR_UNSUPPORTED for others. */
static dlc_status run_update(const void *args) {
    const update_call *c = args;
    dlc_rule_step step;
    if (dlc_rule_step_make(&c->update, &step))
        c->update.rule->run(&step, c->n, c->gradient, c->slots, c->weight);
    return DLC_OK;
}

static dlc_status device_update(dlc_device *device, dlc_queue *queue, size_t n,
                                const dlc_update *update, const float *gradient,
                                float *const *slots, float *weight) {
    (void)device;
    NEEDS_DEVICE(gradient);
    NEEDS_DEVICE(weight);
    update_call c = {
        .n = n, .update = *update, .gradient = view(gradient), .weight = view(weight)};
    for (int32_t i = 0; i < update->rule->slots; i++) {
        NEEDS_DEVICE(slots[i]);
        c.slots[i] = view(slots[i]);
    }
    c.update.values_at = view(update->values_at);
    c.update.loss_scale = view(update->loss_scale);
    c.update.gradient_square = view(update->gradient_square);
    c.update.weight_square = view(update->weight_square);
    c.update.norm_square = view(update->norm_square);
    return submit(queue, run_update, &c, sizeof c);
}

const dlc_device_ops device_ops = {
    .size = sizeof device_ops,
    .count = device_count,
    .describe = device_describe,
    .links = device_links,
    .open = device_open,
    .close = device_close,
    .queues = &queue_ops,
    .alloc = device_alloc,
    .free = device_free,
    .copy = device_copy,
    .fill = device_fill,
    .can_access_peer = device_can_access_peer,
    .ipc_export = device_export,
    .ipc_import = device_import,
    .scale = device_scale,
    .add = device_add,
    .axpy = device_axpy,
    .convert = device_convert,
    .sum = device_sum,
    .square_sums = device_square_sums,
    .total = device_total,
    .update = device_update,
    .add_mean = device_add_mean,
};
