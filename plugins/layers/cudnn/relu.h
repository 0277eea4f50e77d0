/* Fusing a relu or a clip into the layer whose output it reads: forward computes it in
 * the same kernel, backward tells from the output where it was bounded. */
#ifndef DLCORE_CUDNN_RELU_H
#define DLCORE_CUDNN_RELU_H

#include "../shared/relu.h"
#include "cudnn.h"

/* The bounds of the fused activation rounded to `dtype`: backward compares them with
 * the stored output. */
bounds relu_stored(const fused_relu *relu, dlc_dtype dtype);

#endif
