/* Helpers for layers with kernels of our own: sizes, element types, order of
 * dimensions. */
#ifndef DLCORE_CUDNN_TENSORS_H
#define DLCORE_CUDNN_TENSORS_H

#include "cudnn.h"

/* DLC_ERR_UNSUPPORTED unless the elements of one `thing` ("image") can be counted in 32
 * bits, in which the GPU divides fast. */
dlc_status need_countable(const dlc_layer *layer, const char *thing, int64_t elements);

#endif
