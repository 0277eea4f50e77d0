/* Taking over a relu that reads a layer's output: forward as oneDNN's post-op,
 * backward by the sign of the output, which is the sign of what relu read. */
#ifndef ONEDNN_RELU_H
#define ONEDNN_RELU_H

#include "onednn.h"

typedef struct relu_absorbed {
    int on;
    float slope; /* of the negative side */
} relu_absorbed;

/* DLC_ERR_UNSUPPORTED unless `next` is this plugin's relu and none is absorbed. */
dlc_status relu_absorb(relu_absorbed *relu, const dlc_feature *next,
                       const dlc_settings *settings);
/* A copy of the context's attributes with the post-op; destroy it after use. */
dnnl_status_t relu_attr(const relu_absorbed *relu, context *net,
                        dnnl_primitive_attr_t *attr);
/* masked = diff where out > 0, else slope * diff; by the calling thread. */
static inline void relu_mask_some(const relu_absorbed *relu, int64_t count,
                                  const float *out, const float *diff, float *masked) {
    float slope = relu->slope;
    for (int64_t i = 0; i < count; i++)
        masked[i] = out[i] > 0 ? diff[i] : slope * diff[i];
}
/* The same by all threads. */
void relu_mask(const relu_absorbed *relu, int64_t count, const float *out,
               const float *diff, float *masked);

#endif
