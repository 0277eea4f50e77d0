/* Runs a plan a few times between two CUDA events, on memory that is allocated for the
 * graph. */
#include "autotune.h"

#include <math.h>

enum { ALIGNMENT = 256, RUNS = 5 };
static const float far_behind = 1.25f;

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* Places all tensors of the plan one after the other in `memory` and returns their
 * size. NULL: returns the size only. */
static size_t bind_tensors(const graph *g, const cudnn_plan *p, char *memory,
                           plan_bind binds[GRAPH_TENSORS]) {
    size_t used = 0;
    for (int t = 0; t < p->tensors; t++) {
        graph_tensor tensor = (graph_tensor)p->uid[t];
        if (memory)
            binds[t] = (plan_bind){tensor, memory + used};
        used += aligned(g->bytes[tensor]);
    }
    return used;
}

void autotune_close(autotune *with) {
    for (int i = 0; i < 2; i++)
        if (with->event[i])
            (void)cudaEventDestroy(with->event[i]);
    if (with->memory)
        (void)cudaFree(with->memory);
    *with = (autotune){0};
}

/* Small numbers in every type: multiplying zeros takes less power, and so less time. */
enum { FILLED = 0x3c };

static cudaError_t reserve(autotune *with, size_t bytes, cudaStream_t stream) {
    if (with->bytes >= bytes)
        return cudaSuccess;
    autotune_close(with);
    cudaError_t error = cudaMalloc(&with->memory, bytes);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(with->memory, FILLED, bytes, stream);
    for (int i = 0; i < 2 && error == cudaSuccess; i++)
        error = cudaEventCreate(&with->event[i]);
    if (error == cudaSuccess)
        with->bytes = bytes;
    return error;
}

static dlc_status time_runs(const autotune *with, cudnn_plan *p, void *scratch,
                            const plan_bind *binds, float best, float *least) {
    cudaStream_t stream = p->net->stream;
    *least = INFINITY;
    /* The first run loads code and does not count. */
    for (int i = 0; i <= RUNS && (i < 2 || *least < far_behind * best); i++) {
        float took = 0;
        cudaError_t error = cudaEventRecord(with->event[0], stream);
        dlc_status status = plan_run_all(p, scratch, binds, p->tensors);
        if (status != DLC_OK)
            return status;
        if (error == cudaSuccess)
            error = cudaEventRecord(with->event[1], stream);
        if (error == cudaSuccess)
            error = cudaEventSynchronize(with->event[1]);
        if (error == cudaSuccess)
            error = cudaEventElapsedTime(&took, with->event[0], with->event[1]);
        if (error != cudaSuccess)
            return check_cuda(error, p->layer, "time an engine");
        if (i > 0 && took < *least)
            *least = took;
    }
    return DLC_OK;
}

dlc_status autotune_time(autotune *with, const graph *g, cudnn_plan *p, float best,
                         float *milliseconds) {
    plan_bind binds[GRAPH_TENSORS];
    size_t tensors = bind_tensors(g, p, NULL, binds);
    size_t bytes = tensors + aligned(p->scratch_bytes) + ALIGNMENT;
    dlc_status status = check_cuda(reserve(with, bytes, p->net->stream), p->layer,
                                   "take memory to time an engine");
    if (status != DLC_OK)
        return status;
    (void)bind_tensors(g, p, with->memory, binds);
    return time_runs(with, p, (char *)with->memory + tensors, binds, best,
                     milliseconds);
}
