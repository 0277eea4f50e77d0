/* What convolution and inner_product have in common: a matrix of weights and a bias, a
 * fused activation, and 16-bit copies of the float32 weights.
 *
 * The weights' own layout is outputs x points of the window (or image) x channels, the
 * order in which channels-last inputs are read. Channels may be padded with zeros like
 * those of the input; their gradient is zero too, since they only meet zeros.
 *
 * In 16 bits each forward pass rounds the weights once and keeps them in the workspace
 * for backward; their gradient is computed in 16 bits and converted to float32. */
#ifndef DLCORE_CUDNN_WEIGHTED_H
#define DLCORE_CUDNN_WEIGHTED_H

#include "bias.h"
#include "cudnn.h"
#include "relu.h"

typedef struct weighted {
    dlc_layer head;
    int64_t num_output;
    dlc_shape shape; /* of the weights, set by infer */
    int has_bias;
    const char *filler[2]; /* of weight and bias; owned by the settings */
    double rate[2], decay[2];
    fused_relu relu;

    /* Set by prepare. */
    int64_t points, channels,
        padded; /* of the weights of one output; `padded`: channels in memory */
    const dlc_layout *src, *dst;
    bias_job bias_kernel; /* arguments of the kernels of bias.h */
    size_t weights_bytes; /* of the 16-bit weights; 0 in float32 */
    size_t
        gradient_bytes; /* of their 16-bit gradient, at the start of scratch; 0: none */
    size_t copies_bytes; /* 16-bit weights and bias, in the workspace or in scratch */
} weighted;

#define WEIGHTED_OPTIONS \
    DLC_BOOL("bias", "yes", "add a trained constant to each output"), \
        DLC_FILLER("weight_filler", "xavier", "how the weights start"), \
        DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"), \
        DLC_FLOAT("weight_lr_mult", "1", 0, 1e6, \
                  "the weights' learning rate is the solver's times this"), \
        DLC_FLOAT("weight_decay_mult", "1", 0, 1e6, \
                  "the weights' decay is the solver's times this"), \
        DLC_FLOAT("bias_lr_mult", "1", 0, 1e6, \
                  "the bias' learning rate is the solver's times this"), \
        DLC_FLOAT("bias_decay_mult", "1", 0, 1e6, \
                  "the bias' decay is the solver's times this")

/* Reads the options above and num_output. */
void weighted_read(weighted *w, const dlc_settings *settings);
/* Fills in shapes->param (weight of `shape`, bias) and shapes->multiply_adds. `fan_in`
 * weights go into each of the `outputs` of the whole batch. */
dlc_status weighted_params(weighted *w, dlc_layer_shapes *shapes,
                           const dlc_shape *shape, int64_t fan_in, int64_t fan_out,
                           int64_t outputs);
dlc_status weighted_fuse(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings);

/* Sets the layouts and plans the memory for all but `scratch`, the bytes that the
 * product itself needs. Requires src, dst and the three sizes of the weights.
 * `narrow_gradient`: the product computes its gradient in the type of its weights. */
void weighted_plan(weighted *w, dlc_layer_memory *memory, int narrow_gradient,
                   size_t scratch);
/* The product's own part of the scratch memory. */
void *weighted_scratch(const weighted *w, const dlc_layer_run *run);

/* Makes 16-bit copies of the parameters, where needed. */
dlc_status weighted_narrow(const weighted *w, const dlc_layer_run *run);
/* The parameters as the product reads them; weighted_bias is NULL without a bias. */
const void *weighted_weights(const weighted *w, const dlc_layer_run *run);
const void *weighted_bias(const weighted *w, const dlc_layer_run *run);
/* Where the product writes the gradient of the weights; weighted_widen then converts it
 * into run->param_diff. */
void *weighted_gradient(const weighted *w, const dlc_layer_run *run);
dlc_status weighted_widen(const weighted *w, const dlc_layer_run *run);

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
