/* Times cuDNN plans on this GPU, for [train] autotune = yes. Called by plan.c. */
#ifndef DLCORE_CUDNN_AUTOTUNE_H
#define DLCORE_CUDNN_AUTOTUNE_H

#include "graph.h"

/* What the plans of a graph are timed with; zeroed before the first of them. */
typedef struct autotune {
    void *memory;
    size_t bytes;
    cudaEvent_t event[2];
} autotune;

/* The shortest of a few runs on temporary memory; what is far behind the `best` so far
 * is run only once. Only for prepare, since it blocks. The plan must be for the GPU
 * that is here. */
dlc_status autotune_time(autotune *with, const graph *g, cudnn_plan *p, float best,
                         float *milliseconds);
void autotune_close(autotune *with);

#endif
