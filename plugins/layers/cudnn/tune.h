/* How long a plan takes, measured where it is to run. */
#ifndef DLCORE_CUDNN_TUNE_H
#define DLCORE_CUDNN_TUNE_H

#include "graph.h"

/* The shortest of a few runs, on memory that is taken for it. In prepare alone: it
 * blocks.
 */
dlc_status tune_time(const graph *g, cudnn_plan *p, float *milliseconds);

#endif
