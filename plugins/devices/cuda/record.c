/* Recordings are graphs, captured from a stream.
 *
 * Capture is of the recording thread alone (thread-local mode): what other threads do
 * meanwhile, copy a batch or open memory, is none of its business. What would block
 * this thread is refused before CUDA sees it, so that the recording is known to be
 * spoilt, and by what. */
#include "gpu.h"

/* Of this thread. */
static _Thread_local struct {
    int on;
    const char *spoilt_by; /* NULL: by nothing */
} recording_now;

dlc_status record_refuse(const char *what) {
    if (!recording_now.on)
        return DLC_OK;
    recording_now.spoilt_by = what;
    return host->fail(DLC_ERR_CONFIG,
                      "%s waits for work, which is noted and not done while a "
                      "recording is made: give it a queue, or do it before or after",
                      what);
}

dlc_status record_begin(dlc_device *device, dlc_queue *queue) {
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    if (!queue || recording_now.on)
        return host->fail(DLC_ERR_CONFIG, "a recording is made of one queue, one at a "
                                          "time by one thread");
    GPU_TRY(device,
            cudaStreamBeginCapture(dlc_cuda_stream(queue),
                                   cudaStreamCaptureModeThreadLocal),
            "beginning a recording");
    recording_now.on = 1;
    recording_now.spoilt_by = NULL;
    return DLC_OK;
}

/* A graph made ready to run; here already what it needs goes to the GPU. */
static dlc_status make_ready(dlc_device *device, dlc_queue *queue, cudaGraph_t graph,
                             dlc_recording **recording) {
    cudaGraphExec_t ready = NULL;
    GPU_TRY(device, cudaGraphInstantiate(&ready, graph, 0),
            "making a recording ready to run");
    cudaError_t error = cudaGraphUpload(ready, dlc_cuda_stream(queue));
    if (error != cudaSuccess) {
        (void)cudaGraphExecDestroy(ready);
        return gpu_failed(device, error, "taking a recording to the GPU");
    }
    *recording = (dlc_recording *)(void *)ready;
    return DLC_OK;
}

dlc_status record_end(dlc_device *device, dlc_queue *queue, dlc_recording **recording) {
    cudaGraph_t graph = NULL;
    const char *spoilt_by = recording_now.spoilt_by;
    if (!recording_now.on)
        return host->fail(DLC_ERR_CONFIG, "no recording was begun on this thread");
    recording_now.on = 0;
    dlc_status status = gpu_use(device);
    /* In any case: until then the stream takes no work. */
    cudaError_t error = cudaStreamEndCapture(dlc_cuda_stream(queue), &graph);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    if (status == DLC_OK && recording) {
        if (spoilt_by)
            status = host->fail(DLC_ERR_CONFIG,
                                "the recording was spoilt: %s waits for work, which "
                                "is not done while it is made",
                                spoilt_by);
        else if (error != cudaSuccess || !graph)
            status = gpu_failed(device, error, "ending a recording");
        else
            status = make_ready(device, queue, graph, recording);
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

dlc_status record_run(dlc_device *device, dlc_queue *queue, dlc_recording *recording) {
    cudaStream_t stream;
    dlc_status status = gpu_begin(device, queue, "running a recording", &stream);
    if (status != DLC_OK)
        return status;
    cudaGraphExec_t ready = (cudaGraphExec_t)(void *)recording;
    return gpu_end(device, queue, "running a recording",
                   cudaGraphLaunch(ready, stream));
}

void record_close(dlc_device *device, dlc_recording *recording) {
    if (recording && gpu_use(device) == DLC_OK &&
        cudaGraphExecDestroy((cudaGraphExec_t)(void *)recording) != cudaSuccess)
        (void)cudaGetLastError();
}
