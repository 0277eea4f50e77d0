/* Options and parameters of batch_norm. The running averages are parameters without a
 * gradient. */
#include "norm.h"

#include "join.h"

void norm_read(const dlc_layer *layer, const dlc_settings *settings, norm_settings *n) {
    n->epsilon = (float)host->get_float(settings, "eps");
    n->momentum = (float)host->get_float(settings, "momentum");
    n->affine = host->get_bool(settings, "scale_bias");
    n->fixed = layer->frozen || host->get_bool(settings, "use_global_stats");
    n->scale = param_read(settings, "scale");
    n->bias = param_read(settings, "bias");
}

int norm_by_batch(const dlc_layer *layer, const norm_settings *n) {
    return layer->phase == DLC_PHASE_TRAIN && !n->fixed;
}

static void describe_params(const norm_settings *n, dlc_layer_shapes *shapes) {
    static const param_settings mean = {.name = "mean", .filler = "constant(0)"};
    static const param_settings variance = {.name = "variance",
                                            .filler = "constant(1)"};
    shapes->params = 0;
    if (n->affine) {
        (void)param_add_channels(shapes, &n->scale, n->channels);
        (void)param_add_channels(shapes, &n->bias, n->channels);
    }
    param_add_channels(shapes, &mean, n->channels)->flags = DLC_PARAM_BUFFER;
    param_add_channels(shapes, &variance, n->channels)->flags = DLC_PARAM_BUFFER;
}

dlc_status norm_infer(const dlc_layer *layer, norm_settings *n,
                      dlc_layer_shapes *shapes) {
    dlc_status status = infer_one(layer, shapes, 2, 5);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    n->channels = in->dims[1];
    n->samples = dlc_shape_count(in) / n->channels;
    if (norm_by_batch(layer, n) && n->samples < 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its input %s has one number a channel, which has no "
            "variance; take a larger batch",
            layer->name, shape_print(in).text);
    describe_params(n, shapes);
    return DLC_OK;
}

dlc_status norm_fuse(norm_settings *n, const dlc_feature *next,
                     const dlc_settings *settings) {
    if (!eltwise_is_sum(next, settings))
        return relu_or_clip_fuse(&n->relu, next, settings);
    if (n->fused_sum || n->relu.on)
        return DLC_ERR_UNSUPPORTED;
    n->fused_sum = 1;
    return DLC_OK;
}
