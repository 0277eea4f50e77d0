/* The layer types that every family has: their options, which are the same on all
 * devices (options.c), and their calls, which each family defines. */
#ifndef LAYERS_SHARED_TYPES_H
#define LAYERS_SHARED_TYPES_H

#include <dlcore/layer.h>

extern const dlc_layer_ops convolution_ops, inner_product_ops, pooling_ops, relu_ops,
    sigmoid_ops, tanh_ops, elu_ops, gelu_ops, swish_ops, softplus_ops, mish_ops,
    hardswish_ops, clip_ops, abs_ops, lrn_ops, dropout_ops, softmax_ops,
    softmax_loss_ops, sigmoid_cross_entropy_loss_ops, euclidean_loss_ops, accuracy_ops,
    concat_ops, eltwise_ops, batch_norm_ops, scale_ops, flatten_ops;

extern const dlc_option convolution_options[], inner_product_options[],
    pooling_options[], relu_options[], elu_options[], gelu_options[], swish_options[],
    clip_options[], lrn_options[], dropout_options[], softmax_options[],
    softmax_loss_options[], sigmoid_cross_entropy_loss_options[],
    euclidean_loss_options[], accuracy_options[], concat_options[], eltwise_options[],
    batch_norm_options[], scale_options[], flatten_options[];

/* Layer types that not every family has. */
extern const dlc_layer_ops deconvolution_ops, upsample_ops;
extern const dlc_option deconvolution_options[], upsample_options[];

#endif
