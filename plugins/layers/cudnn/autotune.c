/* Runs a plan a few times between two CUDA events, on memory that is allocated for
 * it. */
#include "autotune.h"

enum { ALIGNMENT = 256, RUNS = 5 };

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

static dlc_status time_runs(cudnn_plan *p, void *scratch, const plan_bind *binds,
                            const cudaEvent_t event[2], float *least) {
    cudaStream_t stream = p->net->stream;
    for (int i = 0; i <= RUNS; i++) { /* the first run loads code and does not count */
        float took = 0;
        cudaError_t error = cudaEventRecord(event[0], stream);
        dlc_status status = plan_run_all(p, scratch, binds, p->tensors);
        if (status != DLC_OK)
            return status;
        if (error == cudaSuccess)
            error = cudaEventRecord(event[1], stream);
        if (error == cudaSuccess)
            error = cudaEventSynchronize(event[1]);
        if (error == cudaSuccess)
            error = cudaEventElapsedTime(&took, event[0], event[1]);
        if (error != cudaSuccess)
            return check_cuda(error, p->layer, "time an engine");
        if (i == 1 || (i > 1 && took < *least))
            *least = took;
    }
    return DLC_OK;
}

dlc_status autotune_time(const graph *g, cudnn_plan *p, float *milliseconds) {
    plan_bind binds[GRAPH_TENSORS];
    cudaEvent_t event[2] = {NULL, NULL};
    void *memory = NULL;
    size_t tensors = bind_tensors(g, p, NULL, binds);
    size_t bytes = tensors + aligned(p->scratch_bytes) + ALIGNMENT;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(memory, 0, bytes, p->net->stream);
    for (int i = 0; i < 2 && error == cudaSuccess; i++)
        error = cudaEventCreate(&event[i]);
    dlc_status status = check_cuda(error, p->layer, "take memory to time an engine");
    if (status == DLC_OK) {
        (void)bind_tensors(g, p, memory, binds);
        status = time_runs(p, (char *)memory + tensors, binds, event, milliseconds);
    }
    for (int i = 0; i < 2; i++)
        if (event[i])
            (void)cudaEventDestroy(event[i]);
    if (memory)
        (void)cudaFree(memory);
    return status;
}
