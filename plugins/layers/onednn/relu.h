/* Taking over a relu, or a clip, that reads a layer's output: forward as oneDNN's
 * post-op or in kernels of our own, backward by the output, which tells what was
 * read. */
#ifndef ONEDNN_RELU_H
#define ONEDNN_RELU_H

#include "../shared/bounds.h"
#include "onednn.h"

typedef struct relu_absorbed {
    int on;
    bounds bounds; /* of a relu from zero on, or those of a clip */
} relu_absorbed;

/* DLC_ERR_UNSUPPORTED unless `next` is this plugin's relu and none is absorbed. */
dlc_status relu_absorb(relu_absorbed *relu, const dlc_feature *next,
                       const dlc_settings *settings);
/* The same, for who takes a clip as well and asks for `bounds` alone. A clip that
 * doesn't leave zero at zero is refused: the padding of layouts must stay zero. */
dlc_status relu_or_clip_absorb(relu_absorbed *relu, const dlc_feature *next,
                               const dlc_settings *settings);
/* Is `next` this plugin's eltwise, and a plain sum? */
int eltwise_is_sum(const dlc_feature *next, const dlc_settings *settings);
/* " +relu", " +clip" or nothing, for people. */
const char *relu_text(const relu_absorbed *relu);
/* `bounds` where something was taken over. */
bounds relu_bounds(const relu_absorbed *relu);

/* A copy of the context's attributes with the post-op; destroy it after use. */
dnnl_status_t relu_attr(const relu_absorbed *relu, context *net,
                        dnnl_primitive_attr_t *attr);
/* diff = its own value where out > 0, else slope * that; `count` elements of `dtype`,
 * by all threads. Nobody else reads the gradient of an output. */
void relu_mask(const relu_absorbed *relu, dlc_dtype dtype, int64_t count,
               const void *out, void *diff);

#endif
