/* What kernels of our own ask of tensors. */
#ifndef DLCORE_CUDNN_TENSORS_H
#define DLCORE_CUDNN_TENSORS_H

#include "cudnn.h"

/* Are the elements of one `thing` ("image") so few that kernels can count them in 32
 * bits, in which the GPU divides fast? */
dlc_status need_countable(const dlc_layer *layer, const char *thing, int64_t elements);

/* The type that all inputs have, or else float32. */
dlc_dtype common_type(const dlc_layer_plan *plan);

/* Dimensions in the order in which they lie in memory, outermost first: plain, or
 * channels last. */
void order_dims(int rank, int last, int order[DLC_MAX_DIMS]);

#endif
