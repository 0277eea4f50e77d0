/* layers-cudnn: the layers of a net on an NVIDIA GPU, by cuDNN and cuBLASLt. The
 * descriptor. */
#include <dlcore/plugin.h>

#include "cudnn.h"
#include "library.h"

const dlc_host *host;

static dlc_status load(const dlc_host *given) {
    host = given;
    return library_find();
}

#define LAYER(name_, options_, caps_, help_) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = #name_, \
        .help = (help_), .device = DLC_CUDA_DEVICE, .caps = (caps_), \
        .options = (options_), .ops = &name_##_ops \
    }

/* Activations of 16 bits as well. */
#define SIXTEEN (DLC_LAYER_BF16 | DLC_LAYER_F16)

/* Element by element, and cheap enough to do twice. */
#define POINTWISE (DLC_LAYER_POINTWISE | DLC_LAYER_REPEATABLE | SIXTEEN)

/* The products, whose two backward passes are separate plans. */
#define WEIGHTED (SIXTEEN | DLC_LAYER_PARTS)

/* A score for each class against the label. */
#define CLASSIFIES (DLC_LAYER_METRIC | DLC_LAYER_CLASSIFIES)

static const dlc_feature features[] = {
    LAYER(convolution, convolution_options, WEIGHTED,
          "filters that slide over the image"),
    LAYER(inner_product, inner_product_options, WEIGHTED,
          "each output is a weighted sum of all inputs of its sample"),
    LAYER(pooling, pooling_options, DLC_LAYER_REPEATABLE | SIXTEEN,
          "maximum or average of each window"),
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
    LAYER(lrn, lrn_options, DLC_LAYER_REPEATABLE | SIXTEEN,
          "divide by the strength of what lies around"),
    LAYER(batch_norm, batch_norm_options, DLC_LAYER_REPEATABLE | SIXTEEN,
          "bring each channel to mean 0 and variance 1 over the batch"),
    LAYER(scale, scale_options, SIXTEEN, "each channel times a trained number"),
    LAYER(dropout, dropout_options, SIXTEEN, "zero elements at random while training"),
    LAYER(concat, concat_options, DLC_LAYER_REPEATABLE | SIXTEEN,
          "inputs side by side along one axis"),
    LAYER(eltwise, eltwise_options, DLC_LAYER_JOIN | DLC_LAYER_REPEATABLE | SIXTEEN,
          "sum, product or maximum of inputs of one shape"),
    LAYER(flatten, flatten_options, SIXTEEN, "several dimensions become one"),
    LAYER(softmax, softmax_options, 0, "scores to shares that add up to 1"),
    LAYER(softmax_loss, softmax_loss_options, CLASSIFIES | DLC_LAYER_LOSS | SIXTEEN,
          "cross entropy of softmax(scores) and labels; inputs: scores, labels"),
    LAYER(accuracy, accuracy_options, CLASSIFIES | DLC_LAYER_TEST_ONLY | SIXTEEN,
          "share of samples whose label scores best; inputs: scores, labels"),
    DLC_FEATURES_END,
};

DLC_EXPORT const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "cudnn",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = load,
};
