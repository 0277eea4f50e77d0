/* Fusing a relu, or a clip, that reads a layer's output: forward as oneDNN's post-op or
 * in our own kernels, backward from the output, which determines the gradient. */
#ifndef ONEDNN_RELU_H
#define ONEDNN_RELU_H

#include "../shared/bounds.h"
#include "onednn.h"

typedef struct fused_relu {
    int on;
    bounds bounds; /* of a relu (from zero on) or of a clip */
} fused_relu;

/* Fails with DLC_ERR_UNSUPPORTED unless `next` is this plugin's relu and none is fused
 * yet. */
dlc_status relu_fuse(fused_relu *relu, const dlc_feature *next,
                     const dlc_settings *settings);
/* Like relu_fuse, for layers that support a clip as well and use only `bounds`. A clip
 * that does not map zero to zero is refused: the padding of layouts must stay zero. */
dlc_status relu_or_clip_fuse(fused_relu *relu, const dlc_feature *next,
                             const dlc_settings *settings);
/* Is `next` this plugin's eltwise, and a plain sum? */
int eltwise_is_sum(const dlc_feature *next, const dlc_settings *settings);
/* " +relu", " +clip" or "", for people. */
const char *relu_text(const fused_relu *relu);
/* `bounds` of the fused activation, or BOUNDS_NONE. */
bounds relu_bounds(const fused_relu *relu);

/* A copy of the context's attributes with the post-op; the caller destroys it. */
dnnl_status_t relu_attr(const fused_relu *relu, context *net,
                        dnnl_primitive_attr_t *attr);
/* diff = its own value where out > 0, else slope * that; `count` elements of `dtype`,
 * on all threads. No other layer reads the gradient of an output. */
void relu_mask(const fused_relu *relu, dlc_dtype dtype, int64_t count, const void *out,
               void *diff);

#endif
