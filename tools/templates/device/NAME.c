/* The device "@NAME@": host memory and plain loops on one thread. layers.c has a few
 * layers that run on it, so that it can train something.
 *
 * It has no queues: the work of every call is done when the call returns. The core may
 * call from several threads at once, so nothing here has state. <dlcore/device.h> lists
 * the calls of a device with queues (dlc_device_queue_ops). */
#include "device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const dlc_host *host;

struct dlc_device {
    int32_t threads; /* number of threads that it may use */
};

/* ---- Description ------------------------------------------------------------ */

static dlc_status device_count(int32_t *count) {
    *count = 1;
    return DLC_OK;
}

static dlc_status check_index(int32_t index) {
    return index == 0
               ? DLC_OK
               : host->fail(DLC_ERR_CONFIG,
                            "there is no device @NAME@ %d, only number 0", index);
}

/* Another version of the core may have more or fewer fields, so it asks DLC_HAS. */
static dlc_status device_describe(int32_t index, dlc_device_info *info) {
    dlc_status rc = check_index(index);
    if (rc != DLC_OK)
        return rc;
    if (DLC_HAS(info, name))
        (void)snprintf(info->name, sizeof info->name, "@NAME@, host memory");
    if (DLC_HAS(info, memory_bytes))
        info->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                             (uint64_t)sysconf(_SC_PAGESIZE);
    if (DLC_HAS(info, compute_units))
        info->compute_units = 1;
    if (DLC_HAS(info, numa))
        info->numa = -1;
    return DLC_OK;
}

static dlc_status device_open(const dlc_device_args *args, dlc_device **device) {
    dlc_status rc = check_index(args->index);
    if (rc != DLC_OK)
        return rc;
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->threads = args->threads;
    *device = made;
    return DLC_OK;
}

static void device_close(dlc_device *device) {
    host->free(device);
}

/* ---- Memory ----------------------------------------------------------------- */

/* Memory of a device must be zeroed and aligned to 64 bytes, and host->alloc gives
 * that. */
static dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                               dlc_memory *memory) {
    (void)device;
    void *base = host->alloc(bytes);
    if (!base)
        return DLC_ERR_NOMEM;
    memory->flags = flags;
    memory->base = base;
    memory->bytes = bytes;
    memory->handle = base;
    return DLC_OK;
}

static void device_free(dlc_device *device, dlc_memory *memory) {
    (void)device;
    host->free(memory->handle);
    memory->base = memory->handle = NULL;
    memory->bytes = 0;
}

static dlc_status device_copy(dlc_device *device, dlc_queue *queue, void *dst,
                              const void *src, size_t bytes) {
    (void)device;
    (void)queue;
    if (bytes > 0)
        memmove(dst, src, bytes);
    return DLC_OK;
}

static dlc_status device_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                              size_t bytes) {
    (void)device;
    (void)queue;
    if (bytes > 0)
        memset(dst, byte, bytes);
    return DLC_OK;
}

/* ---- Kernels ---------------------------------------------------------------- */

static dlc_status device_scale(dlc_device *device, dlc_queue *queue, size_t n,
                               float alpha, float *x) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++)
        x[i] *= alpha;
    return DLC_OK;
}

static dlc_status device_add(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *x, float *y) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
    return DLC_OK;
}

static dlc_status device_axpy(dlc_device *device, dlc_queue *queue, size_t n,
                              float alpha, const float *x, float *y) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++)
        y[i] += alpha * x[i];
    return DLC_OK;
}

/* Converts bytes to float32, and any type to itself: the types that its layers use. */
static dlc_status device_convert(dlc_device *device, dlc_queue *queue, size_t n,
                                 dlc_dtype from, const void *src, dlc_dtype to,
                                 void *dst) {
    const unsigned char *bytes = src;
    float *floats = dst;
    if (from == to)
        return device_copy(device, queue, dst, src, n * dlc_dtype_bytes(from));
    if (from != DLC_U8 || to != DLC_F32)
        return host->fail(DLC_ERR_UNSUPPORTED, "@NAME@ does not convert type %d to %d",
                          from, to);
    for (size_t i = 0; i < n; i++)
        floats[i] = bytes[i];
    return DLC_OK;
}

/* The sum of element i of the sources [first, first + count): that of the first `half`
 * sources, where half is a power of two, plus that of the rest, each computed
 * likewise. */
static float pairwise(const float *const *sources, int32_t first, int32_t count,
                      size_t i) {
    int32_t half = 1;
    if (count == 1)
        return sources[first][i];
    while (2 * half < count)
        half *= 2;
    return pairwise(sources, first, half, i) +
           pairwise(sources, first + half, count - half, i);
}

/* All devices add in this order, so that their results are bitwise identical. */
static dlc_status device_sum(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count, float *dst) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++)
        dst[i] = pairwise(sources, 0, count, i);
    return DLC_OK;
}

static dlc_status device_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                                     const float *x, double *sums) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++) {
        double *sum = &sums[i / DLC_SQUARE_PIECE];
        double before = i % DLC_SQUARE_PIECE ? *sum : 0;
        *sum = before + (double)x[i] * (double)x[i];
    }
    return DLC_OK;
}

static dlc_status device_total(dlc_device *device, dlc_queue *queue, size_t n,
                               const double *sums, double *total) {
    (void)device;
    (void)queue;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += sums[i];
    *total = sum;
    return DLC_OK;
}

/* The rule of the solver, as code for CPUs. A device whose memory the CPU cannot read
 * has code of its own, and fails with DLC_ERR_UNSUPPORTED for rules without it. */
static dlc_status device_update(dlc_device *device, dlc_queue *queue, size_t n,
                                const dlc_update *update, const float *gradient,
                                float *const *slots, float *weight) {
    (void)device;
    (void)queue;
    dlc_rule_step step;
    if (dlc_rule_step_make(update, &step))
        update->rule->run(&step, n, gradient, slots, weight);
    return DLC_OK;
}

/* ---- The plugin ------------------------------------------------------------- */

static dlc_status plugin_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_device_ops ops = {
    .size = sizeof ops,
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .copy = device_copy,
    .fill = device_fill,
    .scale = device_scale,
    .add = device_add,
    .axpy = device_axpy,
    .convert = device_convert,
    .sum = device_sum,
    .square_sums = device_square_sums,
    .total = device_total,
    .update = device_update,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DEVICE,
     .name = "@NAME@",
     .help = "host memory, one thread",
     .caps = DLC_DEVICE_HOST,
     .ops = &ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "inner_product",
     .help = "each output is a weighted sum of all inputs of its sample",
     .device = "@NAME@",
     .options = inner_product_options,
     .ops = &inner_product_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "softmax_loss",
     .help = "cross entropy of softmax(scores) and labels; inputs: scores, labels",
     .device = "@NAME@",
     .caps = DLC_LAYER_METRIC | DLC_LAYER_LOSS | DLC_LAYER_CLASSIFIES,
     .ops = &softmax_loss_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "accuracy",
     .help =
         "fraction of samples whose label has the best score; inputs: scores, labels",
     .device = "@NAME@",
     .caps = DLC_LAYER_METRIC | DLC_LAYER_TEST_ONLY | DLC_LAYER_CLASSIFIES,
     .ops = &accuracy_ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("@NAME@", PLUGIN_VERSION, "BSD-2-Clause", features, plugin_load);
