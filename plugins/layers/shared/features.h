/* The layer types of a family. Included once, by its plugin.c, after it has defined
 *
 *     LAYER_DEVICE    the device
 *     SIXTEEN         DLC_LAYER_ bits of the 16-bit types of most layers
 *     SIXTEEN_MORE    those of scale, dropout, flatten, softmax_loss and accuracy */
#include "types.h"

#define LAYER(name_, options_, caps_, help_) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = #name_, \
        .help = (help_), .device = LAYER_DEVICE, .caps = (caps_), \
        .options = (options_), .ops = &name_##_ops \
    }

/* Elementwise, and cheap enough to be recomputed. */
#define POINTWISE (DLC_LAYER_POINTWISE | DLC_LAYER_RECOMPUTABLE | SIXTEEN)

/* Layers with weights; the gradients of data and of weights are computed separately. */
#define WEIGHTED (SIXTEEN | DLC_LAYER_SPLIT_BACKWARD | DLC_LAYER_CHANNEL_PARALLEL)

/* Compares a score for each class with the label. */
#define CLASSIFIES (DLC_LAYER_METRIC | DLC_LAYER_CLASSIFIES)

static const dlc_feature features[] = {
    LAYER(convolution, convolution_options, WEIGHTED,
          "filters that slide over the image"),
    LAYER(inner_product, inner_product_options, WEIGHTED,
          "each output is a weighted sum of all inputs of its sample"),
    LAYER(pooling, pooling_options, DLC_LAYER_RECOMPUTABLE | SIXTEEN,
          "maximum or average of each window"),
    LAYER(deconvolution, deconvolution_options, SIXTEEN | DLC_LAYER_SPLIT_BACKWARD,
          "transposed convolution: each pixel adds a filter to a larger image"),
    LAYER(upsample, upsample_options, DLC_LAYER_RECOMPUTABLE | SIXTEEN,
          "images enlarged by a whole factor"),
    LAYER(relu, relu_options, POINTWISE, "max(0, x), or a smaller slope below zero"),
    LAYER(sigmoid, NULL, POINTWISE, "1 / (1 + exp(-x))"),
    LAYER(tanh, NULL, POINTWISE, "hyperbolic tangent"),
    LAYER(elu, elu_options, POINTWISE, "x, below zero alpha * (exp(x) - 1)"),
    LAYER(gelu, gelu_options, POINTWISE,
          "x times the normal distribution's share below x"),
    LAYER(swish, swish_options, POINTWISE, "x * sigmoid(beta * x)"),
    LAYER(softplus, NULL, POINTWISE, "log(1 + exp(x))"),
    LAYER(mish, NULL, POINTWISE, "x * tanh(log(1 + exp(x)))"),
    LAYER(hardswish, NULL, POINTWISE, "x * min(max(x + 3, 0), 6) / 6"),
    LAYER(clip, clip_options, POINTWISE, "x, held between min and max"),
    LAYER(abs, NULL, POINTWISE, "absolute value"),
    LAYER(lrn, lrn_options, DLC_LAYER_RECOMPUTABLE | SIXTEEN,
          "divide each element by the strength of its neighbourhood"),
    LAYER(batch_norm, batch_norm_options, DLC_LAYER_RECOMPUTABLE | SIXTEEN,
          "normalize each channel to mean 0 and variance 1 over the batch"),
    LAYER(scale, scale_options, SIXTEEN_MORE, "each channel times a trained number"),
    LAYER(dropout, dropout_options, DLC_LAYER_SAMPLEWISE | SIXTEEN_MORE,
          "zero elements at random while training"),
    LAYER(concat, concat_options, DLC_LAYER_RECOMPUTABLE | SIXTEEN,
          "concatenate inputs along one axis"),
    LAYER(eltwise, eltwise_options, DLC_LAYER_BINARY | DLC_LAYER_RECOMPUTABLE | SIXTEEN,
          "sum, product or maximum of inputs of one shape"),
    LAYER(flatten, flatten_options, DLC_LAYER_SAMPLEWISE | SIXTEEN_MORE,
          "merge several dimensions into one"),
    LAYER(softmax, softmax_options, 0,
          "turn scores into probabilities that add up to 1"),
    LAYER(softmax_loss, softmax_loss_options,
          CLASSIFIES | DLC_LAYER_LOSS | SIXTEEN_MORE,
          "cross entropy of softmax(scores) and labels, which are classes, or a "
          "probability of each class; inputs: scores, labels"),
    LAYER(sigmoid_cross_entropy_loss, sigmoid_cross_entropy_loss_options,
          DLC_LAYER_METRIC | DLC_LAYER_LOSS | DLC_LAYER_MULTI_LABEL,
          "cross entropy of sigmoid(scores) and targets of 0 to 1, as for several "
          "labels; inputs: scores, targets"),
    LAYER(euclidean_loss, euclidean_loss_options, DLC_LAYER_METRIC | DLC_LAYER_LOSS,
          "half of the squared distance of values and targets; inputs: values, "
          "targets"),
    LAYER(accuracy, accuracy_options, CLASSIFIES | DLC_LAYER_TEST_ONLY | SIXTEEN_MORE,
          "fraction of samples whose label scores best; inputs: scores, labels"),
    DLC_FEATURES_END,
};
