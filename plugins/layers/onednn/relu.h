/* Fusing a relu, or a clip, that reads a layer's output: forward as oneDNN's post-op or
 * in our own kernels, backward from the output, which determines the gradient. */
#ifndef ONEDNN_RELU_H
#define ONEDNN_RELU_H

#include "../shared/relu.h"
#include "onednn.h"

/* A copy of the context's attributes with the post-op; the caller destroys it. */
dnnl_status_t relu_attr(const fused_relu *relu, context *net,
                        dnnl_primitive_attr_t *attr);
/* diff = its own value where out > 0, else slope * that; `count` elements of `dtype`,
 * on all threads. No other layer reads the gradient of an output. */
void relu_mask(const fused_relu *relu, dlc_dtype dtype, int64_t count, const void *out,
               void *diff);

#endif
