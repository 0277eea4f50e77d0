/* layers-onednn: the layers of a net on the processor, by oneDNN. The descriptor. */
#include "onednn.h"

#include <dlcore/plugin.h>

const dlc_host *host;

static dlc_status load(const dlc_host *given) {
    host = given;
    const dnnl_version_t *version = dnnl_version();
    if (version->major != DNNL_VERSION_MAJOR)
        return host->fail(
            DLC_ERR_UNAVAILABLE, "built for oneDNN %d, but %d.%d.%d is installed",
            DNNL_VERSION_MAJOR, version->major, version->minor, version->patch);
    return DLC_OK;
}

#define LAYER(name_, options_, caps_, help_) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = #name_, \
        .help = (help_), .device = "cpu", .caps = (caps_), .options = (options_), \
        .ops = &name_##_ops \
    }

static const dlc_feature features[] = {
    LAYER(convolution, convolution_options, 0, "filters that slide over the image"),
    LAYER(inner_product, inner_product_options, 0,
          "each output is a weighted sum of all inputs of its sample"),
    LAYER(pooling, pooling_options, 0, "maximum or average of each window"),
    LAYER(relu, relu_options, 0, "max(0, x), or a smaller slope below zero"),
    LAYER(sigmoid, NULL, 0, "1 / (1 + exp(-x))"),
    LAYER(tanh, NULL, 0, "hyperbolic tangent"),
    LAYER(elu, elu_options, 0, "x, below zero alpha * (exp(x) - 1)"),
    LAYER(gelu, gelu_options, 0, "x times the normal distribution's share below x"),
    LAYER(swish, swish_options, 0, "x * sigmoid(beta * x)"),
    LAYER(softplus, NULL, 0, "log(1 + exp(x))"),
    LAYER(mish, NULL, 0, "x * tanh(log(1 + exp(x)))"),
    LAYER(hardswish, NULL, 0, "x * min(max(x + 3, 0), 6) / 6"),
    LAYER(clip, clip_options, 0, "x, held between min and max"),
    LAYER(abs, NULL, 0, "absolute value"),
    LAYER(lrn, lrn_options, 0, "divide by the strength of what lies around"),
    LAYER(batch_norm, batch_norm_options, 0,
          "bring each channel to mean 0 and variance 1 over the batch"),
    LAYER(scale, scale_options, 0, "each channel times a trained number"),
    LAYER(dropout, dropout_options, 0, "zero elements at random while training"),
    LAYER(concat, concat_options, 0, "inputs side by side along one axis"),
    LAYER(eltwise, eltwise_options, 0,
          "sum, product or maximum of inputs of one shape"),
    LAYER(flatten, flatten_options, 0, "several dimensions become one"),
    LAYER(softmax, softmax_options, 0, "scores to shares that add up to 1"),
    LAYER(softmax_loss, softmax_loss_options, DLC_LAYER_METRIC | DLC_LAYER_LOSS,
          "cross entropy of softmax(scores) and labels; inputs: scores, labels"),
    LAYER(accuracy, accuracy_options, DLC_LAYER_METRIC | DLC_LAYER_TEST_ONLY,
          "share of samples whose label scores best; inputs: scores, labels"),
    DLC_FEATURES_END,
};

DLC_EXPORT const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "onednn",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = load,
};
