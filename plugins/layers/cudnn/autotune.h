/* Times a cuDNN plan on this GPU, for [train] autotune = yes. Called by plan.c. */
#ifndef DLCORE_CUDNN_AUTOTUNE_H
#define DLCORE_CUDNN_AUTOTUNE_H

#include "graph.h"

/* The shortest of a few runs on temporary memory. Only for prepare, since it blocks.
 * The plan must be for the GPU that is here. */
dlc_status autotune_time(const graph *g, cudnn_plan *p, float *milliseconds);

#endif
