/* Opens a GPU: found by its PCI address, so that its index here (machine.c) means the
 * same GPU whatever order CUDA counts in. Also the beginning and end of every call. */
#include <stdio.h>
#include <string.h>

#include "fds.h"
#include "gpu.h"
#include "kernels.h"
#include "machine.h"

enum {
    OLDEST = 75
}; /* 10 * compute capability of the oldest GPU that there is code for */

dlc_status gpu_use(const dlc_device *device) {
    GPU_TRY(device, cudaSetDevice(device->number), "cudaSetDevice");
    return DLC_OK;
}

dlc_status gpu_begin(dlc_device *device, dlc_queue *queue, const char *what,
                     cudaStream_t *stream) {
    if (!queue) {
        dlc_status status = capture_refuse(what);
        if (status != DLC_OK)
            return status;
    }
    *stream = queue ? gpu_stream(queue) : device->own;
    return gpu_use(device);
}

dlc_status gpu_end(dlc_device *device, dlc_queue *queue, const char *what,
                   cudaError_t error) {
    if (error == cudaSuccess && !queue)
        error = cudaStreamSynchronize(device->own);
    GPU_TRY(device, error, "%s", what);
    return DLC_OK;
}

static dlc_status attribute(const dlc_device *device, enum cudaDeviceAttr what,
                            int *value) {
    GPU_TRY(device, cudaDeviceGetAttribute(value, what, device->number),
            "cudaDeviceGetAttribute %d", (int)what);
    return DLC_OK;
}

static dlc_status check_capability(const dlc_device *device) {
    int major = 0, minor = 0;
    dlc_status status = attribute(device, cudaDevAttrComputeCapabilityMajor, &major);
    if (status == DLC_OK)
        status = attribute(device, cudaDevAttrComputeCapabilityMinor, &minor);
    if (status == DLC_OK && 10 * major + minor < OLDEST)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the GPU at %s has compute capability %d.%d, but %d.%d or "
                          "later is needed",
                          device->address, major, minor, OLDEST / 10, OLDEST % 10);
    return status;
}

/* Can memory be shared by file descriptors? GPU, driver and system must all allow it.
 */
static int shares_by_file(dlc_device *device) {
    int there = 0, files = 0;
    if (!driver_open(&device->calls))
        return 0;
    (void)device->calls.attribute(
        &there, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        device->number);
    (void)device->calls.attribute(
        &files, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        device->number);
    return there && files && fds_pass();
}

static dlc_status prepare(dlc_device *device) {
    dlc_status status = gpu_use(device);
    if (status == DLC_OK)
        status = check_capability(device);
    if (status == DLC_OK)
        status = attribute(device, cudaDevAttrMultiProcessorCount, &device->units);
    if (status == DLC_OK)
        status = attribute(device, cudaDevAttrCanUseHostPointerForRegisteredMem,
                           &device->one_address);
    if (status != DLC_OK)
        return status;
    device->by_file = shares_by_file(device);
    GPU_TRY(device, cudaStreamCreateWithFlags(&device->own, cudaStreamNonBlocking),
            "a stream");
    GPU_TRY(device,
            cudaHostAlloc((void **)&device->probe, sizeof *device->probe,
                          cudaHostAllocPortable),
            "pinned memory");
    return DLC_OK;
}

dlc_status gpu_number(const char *address, int *number) {
    cudaError_t error = cudaDeviceGetByPCIBusId(number, address);
    if (error == cudaErrorInvalidValue || error == cudaErrorInvalidDevice)
        return gpu_failed(NULL, error,
                          "the GPU at %s, which CUDA doesn't show this process (see "
                          "CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER)",
                          address);
    GPU_TRY(NULL, error, "starting CUDA on the GPU at %s", address);
    return DLC_OK;
}

dlc_status gpu_open(const dlc_device_args *args, dlc_device **device) {
    const machine_gpu *gpu = NULL;
    int number = -1;
    dlc_status status = machine_find(args->index, &gpu);
    if (status == DLC_OK)
        status = gpu_number(gpu->address, &number);
    if (status != DLC_OK)
        return status;
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->number = number;
    (void)snprintf(made->address, sizeof made->address, "%s", gpu->address);
    (void)pthread_mutex_init(&made->probe_lock, NULL);
    (void)pthread_mutex_init(&made->rules_lock, NULL);
    status = prepare(made);
    if (status != DLC_OK) {
        gpu_close(made);
        return status;
    }
    *device = made;
    return DLC_OK;
}

/* The primary context stays: it belongs to the process, and others may be using it. */
void gpu_close(dlc_device *device) {
    if (!device)
        return;
    (void)cudaSetDevice(device->number);
    if (device->own) {
        (void)cudaStreamSynchronize(device->own);
        (void)cudaStreamDestroy(device->own);
    }
    rules_close(device);
    (void)cudaFreeHost(device->probe);
    (void)cudaGetLastError();
    driver_close(&device->calls);
    (void)pthread_mutex_destroy(&device->probe_lock);
    (void)pthread_mutex_destroy(&device->rules_lock);
    host->free(device);
}
