/* A device that runs the cuda device's kernels, thread by thread, on the CPU: a plugin
 * for the conformance tests of devices. All but its kernels and the calls that launch
 * them (compute.c) is fake. */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

const dlc_host *host;

/* ---- In place of context.c, error.c, capture.c, the runtime ------------------- */

dlc_status gpu_begin(dlc_device *device, dlc_queue *queue, const char *what,
                     cudaStream_t *stream) {
    (void)what;
    *stream = queue ? gpu_stream(queue) : device->own;
    return DLC_OK;
}

dlc_status gpu_end(dlc_device *device, dlc_queue *queue, const char *what,
                   cudaError_t error) {
    (void)queue;
    return error == cudaSuccess ? DLC_OK : gpu_failed(device, error, "%s", what);
}

dlc_status gpu_failed(const dlc_device *device, cudaError_t error, const char *what,
                      ...) {
    (void)device;
    return host->fail(DLC_ERR_DEVICE, "%s: %d", what, (int)error);
}

dlc_status capture_refuse(const char *what) {
    (void)what;
    return DLC_OK;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)stream;
    memmove(dst, src, bytes);
    return kind == cudaMemcpyDefault ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(dst, byte, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

dlc_status gpu_use(const dlc_device *device) {
    (void)device;
    return DLC_OK;
}

/* A library is the address of its image; emulated_rules.cpp has its kernels. */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *jit_options, void **jit_values,
                                unsigned int jit_count, enum cudaLibraryOption *options,
                                void **values, unsigned int count) {
    static char one;
    if (!code || jit_options || jit_values || jit_count || options || values || count)
        return cudaErrorInvalidValue;
    *library = (cudaLibrary_t)(void *)&one;
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    return library ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                  const void *kernel) {
    memset(attributes, 0, sizeof *attributes);
    return kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    static _Thread_local enum cudaStreamCaptureMode current;
    enum cudaStreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return cudaSuccess;
}

/* ---- The plugin -------------------------------------------------------------- */

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

static dlc_status device_count(int32_t *count) {
    *count = 1;
    return DLC_OK;
}

static dlc_status device_describe(int32_t index, dlc_device_info *info) {
    (void)index;
    info->compute_units = 1;
    return DLC_OK;
}

/* One multiprocessor, so that small sizes exceed what it holds. */
static dlc_status device_open(const dlc_device_args *args, dlc_device **device) {
    (void)args;
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->units = 1;
    (void)pthread_mutex_init(&made->rules_lock, NULL);
    *device = made;
    return DLC_OK;
}

static void device_close(dlc_device *device) {
    if (!device)
        return;
    rules_close(device);
    (void)pthread_mutex_destroy(&device->rules_lock);
    host->free(device);
}

static dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                               dlc_memory *memory) {
    (void)device;
    memory->flags = flags;
    memory->bytes = bytes;
    memory->base = host->alloc(bytes);
    return memory->base ? DLC_OK : DLC_ERR_NOMEM;
}

static void device_free(dlc_device *device, dlc_memory *memory) {
    (void)device;
    host->free(memory->base);
    memory->base = NULL;
}

static const dlc_device_ops ops = {
    .size = sizeof ops,
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .copy = compute_copy,
    .fill = compute_fill,
    .scale = compute_scale,
    .add = compute_add,
    .axpy = compute_axpy,
    .convert = compute_convert,
    .sum = compute_sum,
    .square_sums = compute_square_sums,
    .total = compute_total,
    .update = compute_update,
    .add_bf16 = compute_add_bf16,
    .sum_to = compute_sum_to,
    .add_mean = compute_add_mean,
    .add_f16 = compute_add_f16,
    .update_loss_scale = compute_update_loss_scale,
    .normalize = compute_normalize,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DEVICE,
     .name = "emulated",
     .help = "the cuda device's kernels on the CPU",
     .caps = DLC_DEVICE_HOST,
     .ops = &ops},
    DLC_FEATURES_END,
};

const DLC_EXPORT dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "emulated",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = load,
};
