/* Taking over a relu, or a clip, that reads a layer's output: forward as oneDNN's
 * post-op or in kernels of our own, backward by the output, which tells what was
 * read. */
#ifndef ONEDNN_RELU_H
#define ONEDNN_RELU_H

#include "bfloat16.h"
#include "bounds.h"
#include "onednn.h"

typedef struct relu_absorbed {
    int on;
    float slope;   /* of the negative side */
    bounds bounds; /* the same, or those of a clip */
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
/* masked = diff where out > 0, else slope * diff; by the calling thread. */
static inline void relu_mask_some(const relu_absorbed *relu, int64_t count,
                                  const float *out, const float *diff, float *masked) {
    float slope = relu->slope;
    for (int64_t i = 0; i < count; i++)
        masked[i] = out[i] > 0 ? diff[i] : slope * diff[i];
}
/* The same of bfloat16, in place of diff. */
static inline void relu_mask_bf16(const relu_absorbed *relu, int64_t count,
                                  const uint16_t *out, uint16_t *diff) {
    enum { SIGN = 0x8000 };
    float slope = relu->slope;
    for (int64_t i = 0; i < count; i++) {
        int positive = out[i] != 0 && !(out[i] & SIGN);
        if (slope == 0)
            diff[i] = positive ? diff[i] : 0;
        else if (!positive)
            diff[i] = to_bf16(slope * from_bf16(diff[i]));
    }
}
/* The same by all threads. */
void relu_mask(const relu_absorbed *relu, int64_t count, const float *out,
               const float *diff, float *masked);

#endif
