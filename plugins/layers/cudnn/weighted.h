/* What convolution, deconvolution and inner_product have in common: a matrix of weights
 * and a bias, a fused activation, and 16-bit copies of the float32 weights.
 *
 * The weights' own layout is outputs x points of the window (or image) x channels, the
 * order in which channels-last inputs are read; a deconvolution's, whose weights are
 * those of a convolution back, is inputs x points x channels of the output. Channels
 * may be padded with zeros like those of the input; their gradient is zero too, since
 * they only meet zeros.
 *
 * In 16 bits each forward pass rounds the weights once and keeps them in the workspace
 * for backward; their gradient is computed in 16 bits and converted to float32. Folded
 * weights (fold.h) are such a copy as well, in any precision. */
#ifndef DLCORE_CUDNN_WEIGHTED_H
#define DLCORE_CUDNN_WEIGHTED_H

#include "../shared/linear.h"
#include "bias.h"
#include "cudnn.h"
#include "relu.h"

typedef struct weighted {
    dlc_layer head;
    linear linear;
    fused_relu relu;

    /* Set by prepare. */
    int64_t points, channels,
        padded; /* of one row of the weights; `padded`: channels in memory */
    const dlc_layout *src, *dst;
    fold fold;             /* stride 0: the product reads the weights as they are */
    bias_job bias_kernel;  /* arguments of the kernels of bias.h */
    size_t weights_bytes;  /* of the copy of the weights; 0: there is none */
    size_t gradient_bytes; /* of the gradient of the copy, at the start of scratch; 0:
                              none */
    size_t copies_bytes;   /* weights and bias, in the workspace or in scratch */
} weighted;

dlc_status weighted_fuse(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings);

/* Sets the layouts and plans the memory for all but `scratch`, the bytes that the
 * product itself needs. Requires src, dst and the three sizes of the weights.
 * `narrow_gradient`: the product computes its gradient in the type of its weights. */
void weighted_plan(weighted *w, dlc_layer_memory *memory, int narrow_gradient,
                   size_t scratch);
/* The product's own part of the scratch memory. */
void *weighted_scratch(const weighted *w, const dlc_layer_run *run);

/* Makes copies of the parameters, in 16 bits or folded, where needed. */
dlc_status weighted_copy(const weighted *w, const dlc_layer_run *run);
/* The parameters as the product reads them; weighted_bias is NULL without a bias. */
const void *weighted_weights(const weighted *w, const dlc_layer_run *run);
const void *weighted_bias(const weighted *w, const dlc_layer_run *run);
/* Where the product writes the gradient of the weights; weighted_copy_back then
 * converts it into run->param_diff. */
void *weighted_gradient(const weighted *w, const dlc_layer_run *run);
dlc_status weighted_copy_back(const weighted *w, const dlc_layer_run *run);

/* Adds the bias to out[0] and applies the activation, with our own kernel. */
dlc_status weighted_bias_forward(const weighted *w, const dlc_layer_run *run);
/* Backward through the activation, in place on out_diff[0], and the gradient of the
 * bias. */
dlc_status weighted_bias_backward(const weighted *w, const dlc_layer_run *run);

dlc_status weighted_import(dlc_layer *layer, int32_t index, const float *plain,
                           float *own);
dlc_status weighted_export(dlc_layer *layer, int32_t index, const float *own,
                           float *plain);

#endif
