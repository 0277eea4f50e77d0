/* Queues and events: CUDA streams and events. */
#include "gpu.h"

dlc_status queue_open(dlc_device *device, dlc_queue **queue) {
    cudaStream_t stream = NULL;
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "a queue");
    *queue = (dlc_queue *)(void *)stream;
    return DLC_OK;
}

/* Completes the queued work first. */
void queue_close(dlc_device *device, dlc_queue *queue) {
    if (!queue || gpu_use(device) != DLC_OK)
        return;
    (void)cudaStreamSynchronize(gpu_stream(queue));
    (void)cudaStreamDestroy(gpu_stream(queue));
    (void)cudaGetLastError();
}

dlc_status queue_sync(dlc_device *device, dlc_queue *queue) {
    cudaStream_t stream;
    dlc_status status = capture_refuse("waiting for a queue");
    if (status == DLC_OK)
        status = gpu_begin(device, queue, "waiting for a queue", &stream);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaStreamSynchronize(stream), "waiting for a queue");
    return DLC_OK;
}

/* Waiting for an event sleeps; that takes some microseconds longer than spinning, which
 * queue_sync does, but leaves the CPU to the threads that load the next batch. */
dlc_status event_open(dlc_device *device, dlc_event **event) {
    cudaEvent_t made = NULL;
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    GPU_TRY(
        device,
        cudaEventCreateWithFlags(&made, cudaEventDisableTiming | cudaEventBlockingSync),
        "an event");
    *event = (dlc_event *)(void *)made;
    return DLC_OK;
}

void event_close(dlc_device *device, dlc_event *event) {
    if (event && gpu_use(device) == DLC_OK &&
        cudaEventDestroy(gpu_event(event)) != cudaSuccess)
        (void)cudaGetLastError();
}

dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event) {
    cudaStream_t stream;
    dlc_status status = gpu_begin(device, queue, "cudaEventRecord", &stream);
    if (status != DLC_OK)
        return status;
    cudaError_t error = cudaEventRecord(gpu_event(event), stream);
    return gpu_end(device, queue, "cudaEventRecord", error);
}

dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event) {
    cudaStream_t stream;
    dlc_status status = gpu_begin(device, queue, "a queue's wait", &stream);
    if (status != DLC_OK)
        return status;
    cudaError_t error = cudaStreamWaitEvent(stream, gpu_event(event), 0);
    return gpu_end(device, queue, "a queue's wait", error);
}

dlc_status event_done(dlc_device *device, dlc_event *event, int *done) {
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    cudaError_t error = cudaEventQuery(gpu_event(event));
    if (error == cudaErrorNotReady)
        (void)cudaGetLastError();
    else
        GPU_TRY(device, error, "querying an event");
    *done = error == cudaSuccess;
    return DLC_OK;
}

dlc_status event_sync(dlc_device *device, dlc_event *event) {
    dlc_status status = capture_refuse("waiting for an event");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaEventSynchronize(gpu_event(event)), "waiting for an event");
    return DLC_OK;
}

dlc_status gpu_native(dlc_device *device, dlc_queue *queue, uint32_t kind,
                      void *handle) {
    switch (kind) {
    case DLC_NATIVE_CUDA_DEVICE:
        *(int *)handle = device->number;
        return DLC_OK;
    case DLC_NATIVE_CUDA_STREAM:
        *(cudaStream_t *)handle = gpu_stream(queue);
        return DLC_OK;
    default:
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "device cuda has no native handle of kind %u", kind);
    }
}
