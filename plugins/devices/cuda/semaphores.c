/* Semaphores that queues write and wait for: the driver's stream memory operations. A
 * waiting stream occupies no multiprocessor, and other processes' work on the same GPU
 * goes on. A write is preceded by a system-wide fence, so what kernels wrote to other
 * GPUs before it is visible.
 *
 * During a capture they become nodes of the graph, one for each call.
 *
 * CUDA warns that it does not see such dependencies, and may put work of a process in a
 * hardware queue behind a wait. So a queue signals the others before it waits for them:
 * they don't depend on what is stuck behind its wait. The same holds for kernels, which
 * CUDA loads on first use and then waits for all queues of the process: if all ranks
 * submit work in one order, it waits only for work already submitted.
 */
#include "gpu.h"

/* The driver accepts fewer than 256 per call. */
enum { AT_ONCE = 128 };

/* The address as the GPU sees it: pinned memory of other processes may have another one
 * there. */
static dlc_status find_semaphore(const dlc_device *device, uint32_t *semaphore,
                                 CUdeviceptr *at) {
    void *there = semaphore;
    if (!device->one_address)
        GPU_TRY(device, cudaHostGetDevicePointer(&there, semaphore, 0),
                "the semaphore at %p is not in host memory of this device",
                (void *)semaphore);
    *at = (CUdeviceptr)(uintptr_t)there;
    return DLC_OK;
}

static dlc_status translate(const dlc_device *device, const dlc_semaphore_op *step,
                            CUstreamBatchMemOpParams *to) {
    CUdeviceptr at = 0;
    dlc_status status = find_semaphore(device, step->semaphore, &at);
    if (status != DLC_OK)
        return status;
    *to = (CUstreamBatchMemOpParams){0};
    if (step->kind == DLC_SEMAPHORE_WRITE) {
        to->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        to->writeValue.address = at;
        to->writeValue.value = step->value;
        to->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        return DLC_OK;
    }
    if (step->kind != DLC_SEMAPHORE_WAIT)
        return host->fail(DLC_ERR_CONFIG, "unknown semaphore operation %u", step->kind);
    to->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    to->waitValue.address = at;
    to->waitValue.value = step->value;
    to->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return DLC_OK;
}

static dlc_status submit(dlc_device *device, cudaStream_t stream,
                         const dlc_semaphore_op *steps, int32_t count) {
    CUstreamBatchMemOpParams params[AT_ONCE];
    for (int32_t i = 0; i < count; i++) {
        dlc_status status = translate(device, &steps[i], &params[i]);
        if (status != DLC_OK)
            return status;
    }
    GPU_TRY(
        device,
        DRIVER_ERROR(device->calls.stream_batch(stream, (unsigned)count, params, 0)),
        "semaphore operations (cuStreamBatchMemOp)");
    return DLC_OK;
}

/* Writes and waits for a semaphore; then captures the same into a graph that is
 * discarded. */
static dlc_status probe_stream(dlc_device *device, cudaStream_t stream,
                               uint32_t *semaphore) {
    const dlc_semaphore_op both[] = {{DLC_SEMAPHORE_WRITE, 7, semaphore},
                                     {DLC_SEMAPHORE_WAIT, 7, semaphore}};
    cudaGraph_t graph = NULL;
    dlc_status status = submit(device, stream, both, 2);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaStreamSynchronize(stream), "probing semaphores");
    if (*semaphore != 7)
        return host->fail(DLC_ERR_UNSUPPORTED, "GPU %d at %s does not write semaphores",
                          device->number, device->address);
    GPU_TRY(device, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            "probing semaphores in a capture");
    status = submit(device, stream, both, 2);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (status == DLC_OK)
        GPU_TRY(device, error, "probing semaphores in a capture");
    return status;
}

/* There is no attribute that says whether they work. */
static dlc_status probe_semaphores(dlc_device *device) {
    cudaStream_t stream = NULL;
    dlc_status status = capture_refuse("probing semaphores");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "a queue to probe semaphores on");
    (void)pthread_mutex_lock(&device->probe_lock);
    uint32_t *semaphore = device->probe;
    *semaphore = 0;
    status = probe_stream(device, stream, semaphore);
    (void)pthread_mutex_unlock(&device->probe_lock);
    (void)cudaStreamDestroy(stream);
    (void)cudaGetLastError();
    return status == DLC_OK ? DLC_OK : DLC_ERR_UNSUPPORTED;
}

dlc_status queue_semaphores(dlc_device *device, dlc_queue *queue,
                            const dlc_semaphore_op *steps, int32_t count) {
    cudaStream_t stream;
    if (!device->calls.stream_batch)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the driver has no cuStreamBatchMemOp_v2: it is too old");
    if (count == 0)
        return probe_semaphores(device);
    dlc_status status = gpu_begin(device, queue, "semaphore operations", &stream);
    for (int32_t at = 0; status == DLC_OK && at < count; at += AT_ONCE)
        status = submit(device, stream, steps + at,
                        count - at < AT_ONCE ? count - at : AT_ONCE);
    return status == DLC_OK
               ? gpu_end(device, queue, "semaphore operations", cudaSuccess)
               : status;
}
