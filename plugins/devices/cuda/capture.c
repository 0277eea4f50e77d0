/* Captured graphs: CUDA graphs captured from a stream.
 *
 * Capture is local to the capturing thread (thread-local mode): other threads may copy
 * a batch or allocate memory meanwhile. Calls that would block this thread are refused
 * before CUDA sees them, so that it is known that the capture is invalid, and which
 * call made it so.
 */
#include "gpu.h"

/* State of this thread's capture. */
static _Thread_local struct {
    int on;
    const char *invalid_by; /* NULL: valid */
} capture;

dlc_status capture_refuse(const char *what) {
    if (!capture.on)
        return DLC_OK;
    capture.invalid_by = what;
    return host->fail(DLC_ERR_CONFIG,
                      "%s waits for work, which is captured and not executed during a "
                      "capture: give it a queue, or do it before or after",
                      what);
}

dlc_status capture_begin(dlc_device *device, dlc_queue *queue) {
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    if (!queue || capture.on)
        return host->fail(DLC_ERR_CONFIG,
                          "a graph is captured from one queue, one at a "
                          "time by one thread");
    GPU_TRY(device,
            cudaStreamBeginCapture(gpu_stream(queue), cudaStreamCaptureModeThreadLocal),
            "beginning a capture");
    capture.on = 1;
    capture.invalid_by = NULL;
    return DLC_OK;
}

/* Instantiates a graph and uploads what it needs to the GPU. */
static dlc_status instantiate(dlc_device *device, dlc_queue *queue, cudaGraph_t graph,
                              dlc_captured_graph **captured) {
    cudaGraphExec_t ready = NULL;
    GPU_TRY(device, cudaGraphInstantiate(&ready, graph, 0),
            "instantiating a captured graph");
    cudaError_t error = cudaGraphUpload(ready, gpu_stream(queue));
    if (error != cudaSuccess) {
        (void)cudaGraphExecDestroy(ready);
        return gpu_failed(device, error, "uploading a captured graph");
    }
    *captured = (dlc_captured_graph *)(void *)ready;
    return DLC_OK;
}

dlc_status capture_end(dlc_device *device, dlc_queue *queue,
                       dlc_captured_graph **captured) {
    cudaGraph_t graph = NULL;
    const char *invalid_by = capture.invalid_by;
    if (!capture.on)
        return host->fail(DLC_ERR_CONFIG, "no capture was begun on this thread");
    capture.on = 0;
    dlc_status status = gpu_use(device);
    /* In any case: until then the stream accepts no work. */
    cudaError_t error = cudaStreamEndCapture(gpu_stream(queue), &graph);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    if (status == DLC_OK && captured) {
        if (invalid_by)
            status = host->fail(DLC_ERR_CONFIG,
                                "the capture is invalid: %s waits for work, which "
                                "is not executed during a capture",
                                invalid_by);
        else if (error != cudaSuccess || !graph)
            status = gpu_failed(device, error, "ending a capture");
        else
            status = instantiate(device, queue, graph, captured);
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

dlc_status graph_launch(dlc_device *device, dlc_queue *queue,
                        dlc_captured_graph *captured) {
    cudaStream_t stream;
    dlc_status status = gpu_begin(device, queue, "launching a captured graph", &stream);
    if (status != DLC_OK)
        return status;
    cudaGraphExec_t ready = (cudaGraphExec_t)(void *)captured;
    return gpu_end(device, queue, "launching a captured graph",
                   cudaGraphLaunch(ready, stream));
}

void graph_close(dlc_device *device, dlc_captured_graph *captured) {
    if (captured && gpu_use(device) == DLC_OK &&
        cudaGraphExecDestroy((cudaGraphExec_t)(void *)captured) != cudaSuccess)
        (void)cudaGetLastError();
}
