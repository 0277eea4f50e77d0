/* See tune.h. */
#include "tune.h"

enum { ALIGNMENT = 256, RUNS = 5 };

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* All tensors side by side, then scratch memory; NULL: only the size is asked for. */
static size_t lay_out(const graph *g, const cudnn_plan *p, char *memory,
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
                            const cudaEvent_t mark[2], float *least) {
    cudaStream_t stream = p->net->stream;
    for (int i = 0; i <= RUNS; i++) { /* the first one loads code, and doesn't count */
        float took = 0;
        cudaError_t error = cudaEventRecord(mark[0], stream);
        dlc_status status = plan_run_all(p, scratch, binds, p->tensors);
        if (status != DLC_OK)
            return status;
        if (error == cudaSuccess)
            error = cudaEventRecord(mark[1], stream);
        if (error == cudaSuccess)
            error = cudaEventSynchronize(mark[1]);
        if (error == cudaSuccess)
            error = cudaEventElapsedTime(&took, mark[0], mark[1]);
        if (error != cudaSuccess)
            return check_cuda(error, p->layer, "time an engine");
        if (i == 1 || (i > 1 && took < *least))
            *least = took;
    }
    return DLC_OK;
}

dlc_status tune_time(const graph *g, cudnn_plan *p, float *milliseconds) {
    plan_bind binds[GRAPH_TENSORS];
    cudaEvent_t mark[2] = {NULL, NULL};
    void *memory = NULL;
    size_t tensors = lay_out(g, p, NULL, binds);
    size_t bytes = tensors + aligned(p->scratch_bytes) + ALIGNMENT;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(memory, 0, bytes, p->net->stream);
    for (int i = 0; i < 2 && error == cudaSuccess; i++)
        error = cudaEventCreate(&mark[i]);
    dlc_status status = check_cuda(error, p->layer, "take memory to time an engine");
    if (status == DLC_OK) {
        (void)lay_out(g, p, memory, binds);
        status = time_runs(p, (char *)memory + tensors, binds, mark, milliseconds);
    }
    for (int i = 0; i < 2; i++)
        if (mark[i])
            (void)cudaEventDestroy(mark[i]);
    if (memory)
        (void)cudaFree(memory);
    return status;
}
