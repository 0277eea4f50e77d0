/* What convolution and inner_product share: a matrix of weights and a bias, an
 * activation taken over from the layer behind them, and 16-bit copies of float32
 * weights.
 *
 * Own layout of the weights: outputs, points of the window (or image), channels: the
 * order in which channels_last inputs are read. Channels may be padded with zeros, as
 * those of the input are; their gradient is zero as well, since they meet zeros alone.
 *
 * In 16 bits each forward pass rounds the weights once and leaves them in the workspace
 * for backward; their gradient comes in 16 bits and is widened into float32. */
#ifndef DLCORE_CUDNN_WEIGHTED_H
#define DLCORE_CUDNN_WEIGHTED_H

#include "bias.h"
#include "cudnn.h"
#include "relu.h"

typedef struct weighted {
    dlc_layer head;
    int64_t num_output;
    int has_bias;
    const char *filler[2]; /* of weight and bias; the settings' */
    double rate[2], decay[2];
    relu_absorbed relu;

    /* From prepare on. */
    int64_t points, channels, padded; /* of the weights of one output */
    const dlc_layout *src, *dst;
    bias_job beside;       /* bias and activation, as kernels of our own have them */
    size_t weights_bytes;  /* of the 16-bit weights; 0 in float32 */
    size_t gradient_bytes; /* of their 16-bit gradient, first in scratch, if there is
                              one */
    size_t copies_bytes; /* 16-bit weights and bias: in the workspace, or in scratch */
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
/* Fills in plan->param (weight of `shape`, bias) and plan->multiply_adds. `fan_in`
 * weights go into each of the `outputs` of the whole batch. */
dlc_status weighted_params(const weighted *w, dlc_layer_plan *plan,
                           const dlc_shape *shape, int64_t fan_in, int64_t fan_out,
                           int64_t outputs);
dlc_status weighted_absorb(dlc_layer *layer, const dlc_feature *next,
                           const dlc_settings *settings);

/* src, dst and the three sizes of the weights are set: gives the layouts, plans memory
 * for all but `scratch`, which the product itself wants. `narrow_gradient`: its
 * gradient comes in 16 bits where its weights are. */
void weighted_plan(weighted *w, dlc_layer_plan *plan, int narrow_gradient,
                   size_t scratch);
/* What of the run's scratch is the product's own. */
void *weighted_scratch(const weighted *w, const dlc_layer_run *run);

/* Makes 16-bit copies of the parameters where there are some to make. */
dlc_status weighted_narrow(const weighted *w, const dlc_layer_run *run);
/* The parameters as the product reads them; of a bias NULL if there is none. */
const void *weighted_weights(const weighted *w, const dlc_layer_run *run);
const void *weighted_bias(const weighted *w, const dlc_layer_run *run);
/* Where the product puts the gradient of the weights, and then: into run->param_diff.
 */
void *weighted_gradient(const weighted *w, const dlc_layer_run *run);
dlc_status weighted_widen(const weighted *w, const dlc_layer_run *run);

/* Bias and activation on out[0], by a kernel of our own. */
dlc_status weighted_finish(const weighted *w, const dlc_layer_run *run);
/* The way back through the activation, on out_diff[0], and the bias' gradient. */
dlc_status weighted_back(const weighted *w, const dlc_layer_run *run);

dlc_status weighted_import(dlc_layer *layer, int32_t index, const float *plain,
                           float *own);
dlc_status weighted_export(dlc_layer *layer, int32_t index, const float *own,
                           float *plain);

#endif
