/* Words that queues write and wait for: the driver's stream memory operations. A
 * stream that waits takes no multiprocessor, and other processes' work on the same GPU
 * goes on. A write comes behind a fence for the whole system, so what kernels wrote to
 * other GPUs before it is there.
 *
 * While a recording is made they become nodes of the graph, one for each call.
 *
 * CUDA warns that it does not see such an order, and may put work of a process in a
 * hardware queue behind what waits there. So a queue of ours tells the others that it
 * has come before it waits for them: whatever is stuck behind, they are not. So it is,
 * too, with kernels, which CUDA loads at their first use and then waits for all queues
 * of the process: who gives work in one order on all ranks waits for what was given. */
#include "gpu.h"

/* The driver takes fewer than 256 at once. */
enum { AT_ONCE = 128 };

/* As the GPU sees it: pinned memory of others may have another address there. */
static dlc_status find_word(const dlc_device *device, uint32_t *word, CUdeviceptr *at) {
    void *there = word;
    if (!device->one_address)
        GPU_TRY(device, cudaHostGetDevicePointer(&there, word, 0),
                "a word at %p, which is no host memory of this device", (void *)word);
    *at = (CUdeviceptr)(uintptr_t)there;
    return DLC_OK;
}

static dlc_status translate(const dlc_device *device, const dlc_word_step *step,
                            CUstreamBatchMemOpParams *to) {
    CUdeviceptr at = 0;
    dlc_status status = find_word(device, step->word, &at);
    if (status != DLC_OK)
        return status;
    *to = (CUstreamBatchMemOpParams){0};
    if (step->kind == DLC_WORD_WRITE) {
        to->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        to->writeValue.address = at;
        to->writeValue.value = step->value;
        to->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        return DLC_OK;
    }
    if (step->kind != DLC_WORD_WAIT)
        return host->fail(DLC_ERR_CONFIG, "a step of kind %u at a word", step->kind);
    to->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    to->waitValue.address = at;
    to->waitValue.value = step->value;
    to->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return DLC_OK;
}

static dlc_status give(dlc_device *device, cudaStream_t stream,
                       const dlc_word_step *steps, int32_t count) {
    CUstreamBatchMemOpParams params[AT_ONCE];
    for (int32_t i = 0; i < count; i++) {
        dlc_status status = translate(device, &steps[i], &params[i]);
        if (status != DLC_OK)
            return status;
    }
    GPU_TRY(device,
            DRIVER_ERROR(device->calls.words(stream, (unsigned)count, params, 0)),
            "steps at words (cuStreamBatchMemOp)");
    return DLC_OK;
}

/* Written, and waited for; then the same into a recording that is thrown away. */
static dlc_status try_on(dlc_device *device, cudaStream_t stream, uint32_t *word) {
    const dlc_word_step both[] = {{DLC_WORD_WRITE, 7, word}, {DLC_WORD_WAIT, 7, word}};
    cudaGraph_t graph = NULL;
    dlc_status status = give(device, stream, both, 2);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaStreamSynchronize(stream), "trying words");
    if (*word != 7)
        return host->fail(DLC_ERR_UNSUPPORTED, "GPU %d at %s writes no words",
                          device->number, device->address);
    GPU_TRY(device, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            "trying to record words");
    status = give(device, stream, both, 2);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (status == DLC_OK)
        GPU_TRY(device, error, "trying to record words");
    return status;
}

/* There is no attribute that tells whether they work. */
static dlc_status try_words(dlc_device *device) {
    cudaStream_t stream = NULL;
    dlc_status status = record_refuse("trying words");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    GPU_TRY(device, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "a queue to try words on");
    (void)pthread_mutex_lock(&device->squares);
    uint32_t *word = (uint32_t *)(void *)device->result;
    *word = 0;
    status = try_on(device, stream, word);
    (void)pthread_mutex_unlock(&device->squares);
    (void)cudaStreamDestroy(stream);
    (void)cudaGetLastError();
    return status == DLC_OK ? DLC_OK : DLC_ERR_UNSUPPORTED;
}

dlc_status queue_words(dlc_device *device, dlc_queue *queue, const dlc_word_step *steps,
                       int32_t count) {
    cudaStream_t stream;
    if (!device->calls.words)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the driver has no cuStreamBatchMemOp_v2: it is too old");
    if (count == 0)
        return try_words(device);
    dlc_status status = gpu_begin(device, queue, "steps at words", &stream);
    for (int32_t at = 0; status == DLC_OK && at < count; at += AT_ONCE)
        status = give(device, stream, steps + at,
                      count - at < AT_ONCE ? count - at : AT_ONCE);
    return status == DLC_OK ? gpu_end(device, queue, "steps at words", cudaSuccess)
                            : status;
}
