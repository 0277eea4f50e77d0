/* The device's compute calls: each finds its stream, launches the work and, without a
 * queue, waits. A size of 0 is no work. */
#include "gpu.h"
#include "kernels.h"

/* `launch` may use `at`. */
#define WORK(device, queue, what, launch) \
    do { \
        kernel_launch at = {NULL, (device)->units}; \
        dlc_status status_ = gpu_begin(device, queue, what, &at.stream); \
        if (status_ != DLC_OK) \
            return status_; \
        return gpu_end(device, queue, what, launch); \
    } while (0)

dlc_status compute_copy(dlc_device *device, dlc_queue *queue, void *dst,
                        const void *src, size_t bytes) {
    if (dst == src)
        bytes = 0;
    WORK(device, queue, "copying",
         bytes ? cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, at.stream)
               : cudaSuccess);
}

dlc_status compute_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                        size_t bytes) {
    WORK(device, queue, "filling",
         bytes ? cudaMemsetAsync(dst, byte, bytes, at.stream) : cudaSuccess);
}

dlc_status compute_scale(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                         float *x) {
    WORK(device, queue, "scale", n ? kernel_scale(at, n, alpha, x) : cudaSuccess);
}

dlc_status compute_add(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                       float *y) {
    WORK(device, queue, "add", n ? kernel_add(at, n, x, y) : cudaSuccess);
}

dlc_status compute_axpy(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                        const float *x, float *y) {
    WORK(device, queue, "axpy", n ? kernel_axpy(at, n, alpha, x, y) : cudaSuccess);
}

dlc_status compute_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                            const uint16_t *x, uint16_t *y) {
    WORK(device, queue, "add_bf16", n ? kernel_add_bf16(at, n, x, y) : cudaSuccess);
}

dlc_status compute_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                           const uint16_t *x, uint16_t *y) {
    WORK(device, queue, "add_f16", n ? kernel_add_f16(at, n, x, y) : cudaSuccess);
}

static dlc_status run_convert(dlc_device *device, dlc_queue *queue, size_t n,
                              dlc_dtype from, const void *src, dlc_dtype to,
                              void *dst) {
    WORK(device, queue, "convert", kernel_convert(at, n, from, src, to, dst));
}

dlc_status compute_convert(dlc_device *device, dlc_queue *queue, size_t n,
                           dlc_dtype from, const void *src, dlc_dtype to, void *dst) {
    size_t bytes = dlc_dtype_bytes(from);
    if (from == to && bytes > 0)
        return compute_copy(device, queue, dst, src, n * bytes);
    if (bytes == 0 || dlc_dtype_bytes(to) == 0 || (from != DLC_F32 && to != DLC_F32))
        return host->fail(
            DLC_ERR_UNSUPPORTED,
            "the cuda device does not convert type %d to type %d: convert "
            "to float32 first",
            (int)from, (int)to);
    return n ? run_convert(device, queue, n, from, src, to, dst) : DLC_OK;
}

static dlc_status run_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count,
                             float *const *dsts, int32_t dst_count) {
    WORK(device, queue, "sum",
         n ? kernel_sum_to(at, n, sources, count, dsts, dst_count) : cudaSuccess);
}

dlc_status compute_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                          const float *const *sources, int32_t count,
                          float *const *dsts, int32_t dst_count) {
    if (count < 1 || dst_count < 1)
        return host->fail(DLC_ERR_CONFIG,
                          "sum of %d sources to %d destinations: give at least one",
                          count, dst_count);
    if (count > KERNEL_SOURCES || dst_count > KERNEL_SOURCES)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "sum of %d sources to %d destinations: the cuda device takes "
                          "up to %d",
                          count, dst_count, KERNEL_SOURCES);
    return run_sum_to(device, queue, n, sources, count, dsts, dst_count);
}

dlc_status compute_sum(dlc_device *device, dlc_queue *queue, size_t n,
                       const float *const *sources, int32_t count, float *dst) {
    return compute_sum_to(device, queue, n, sources, count, &dst, 1);
}

dlc_status compute_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                               const float *x, double *sums) {
    WORK(device, queue, "square_sums",
         n ? kernel_square_sums(at, n, x, sums) : cudaSuccess);
}

dlc_status compute_total(dlc_device *device, dlc_queue *queue, size_t n,
                         const double *sums, double *total) {
    WORK(device, queue, "total", kernel_total(at, n, sums, total));
}

/* Packs begin where all pointers are aligned; if their alignments differ, there are
 * none. */
static dlc_rule_operands operands_of(size_t n, const dlc_rule *rule,
                                     const float *gradient, float *const *slots,
                                     float *weight) {
    const size_t pack = DLC_RULE_PACK * sizeof(float);
    dlc_rule_operands o = {.n = n, .gradient = gradient, .weight = weight};
    uintptr_t offset = (uintptr_t)weight % pack;
    int aligned = (uintptr_t)gradient % pack == offset;
    for (int32_t k = 0; k < rule->slots; k++) {
        o.slots[k] = slots[k];
        aligned = aligned && (uintptr_t)slots[k] % pack == offset;
    }
    o.head = aligned ? (pack - offset) % pack / sizeof(float) : n;
    o.head = o.head < n ? o.head : n;
    o.packs = (n - o.head) / DLC_RULE_PACK;
    return o;
}

/* Enough threads to fill all multiprocessors, which take turns if there is more work.
 */
static cudaError_t launch_update(kernel_launch at, cudaKernel_t kernel,
                                 dlc_update update, dlc_rule_operands operands) {
    enum { THREADS = 256, BLOCKS = 8 /* of a multiprocessor */ };
    size_t singles = operands.n - operands.packs * DLC_RULE_PACK;
    size_t items = operands.packs > singles ? operands.packs : singles;
    size_t blocks = (items + THREADS - 1) / THREADS, most = (size_t)at.units * BLOCKS;
    void *arguments[] = {&update, &operands};
    const dim3 grid = {(unsigned)(blocks < most ? blocks : most), 1, 1};
    const dim3 block = {THREADS, 1, 1};
    return cudaLaunchKernel((const void *)kernel, grid, block, arguments, 0, at.stream);
}

dlc_status compute_update(dlc_device *device, dlc_queue *queue, size_t n,
                          const dlc_update *update, const float *gradient,
                          float *const *slots, float *weight) {
    cudaKernel_t kernel = NULL;
    dlc_status status = rules_find(device, update->rule, &kernel);
    if (status != DLC_OK || n == 0)
        return status;
    WORK(device, queue, "update",
         launch_update(at, kernel, *update,
                       operands_of(n, update->rule, gradient, slots, weight)));
}

dlc_status compute_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                            const float *x, float *y) {
    WORK(device, queue, "add_mean", kernel_add_mean(at, alpha, x, y));
}

dlc_status compute_update_loss_scale(dlc_device *device, dlc_queue *queue,
                                     const double *square, int32_t growth_interval,
                                     dlc_loss_scale *scale) {
    WORK(device, queue, "update_loss_scale",
         kernel_update_loss_scale(at, square, growth_interval, scale));
}

static dlc_status run_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                                const kernel_images *images) {
    WORK(device, queue, "normalize", n ? kernel_normalize(at, n, images) : cudaSuccess);
}

dlc_status compute_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                             size_t plane, size_t channels, const uint8_t *src,
                             const float *mean, const float *scale, float *dst) {
    const kernel_images images = {.src = src,
                                  .mean = mean,
                                  .dst = dst,
                                  .scale = scale,
                                  .plane = plane,
                                  .channels = channels};
    return run_normalize(device, queue, n, &images);
}
