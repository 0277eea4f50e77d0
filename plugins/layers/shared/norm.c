/* Options and parameters of batch_norm. The running averages are parameters without a
 * gradient. */
#include "norm.h"

#include "join.h"

void norm_read(const dlc_layer *layer, const dlc_settings *settings, norm_settings *n) {
    n->epsilon = (float)host->get_float(settings, "eps");
    n->momentum = (float)host->get_float(settings, "momentum");
    n->affine = host->get_bool(settings, "scale_bias");
    n->fixed = layer->frozen || host->get_bool(settings, "use_global_stats");
    n->global = option_is(settings, "statistics", "global");
    n->scale = param_read(settings, "scale");
    n->bias = param_read(settings, "bias");
}

int norm_by_batch(const dlc_layer *layer, const norm_settings *n) {
    return layer->phase == DLC_PHASE_TRAIN && !n->fixed;
}

int norm_by_group(const dlc_layer *layer, const norm_settings *n) {
    return norm_by_batch(layer, n) && n->global && layer->group;
}

int norm_reads_in(const dlc_layer *layer, const norm_settings *n) {
    return norm_by_batch(layer, n) || (n->affine && has_weight_gradient(layer));
}

int norm_reads_out(const dlc_layer *layer, const norm_settings *n) {
    return n->relu.on && (n->fused_sum || !norm_reads_in(layer, n));
}

const char *norm_statistics_text(const dlc_layer *layer, const norm_settings *n) {
    return norm_by_batch(layer, n) && n->global ? ", global statistics" : "";
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
    shapes->collective = norm_by_batch(layer, n) && n->global;
    describe_params(n, shapes);
    /* How many ranks there are is not known before prepare. */
    return shapes->collective ? DLC_OK : norm_check_batch(layer, n, in);
}

dlc_status norm_check_batch(const dlc_layer *layer, const norm_settings *n,
                            const dlc_shape *in) {
    if (!norm_by_batch(layer, n) || norm_by_group(layer, n) || n->samples > 1)
        return DLC_OK;
    return host->fail(DLC_ERR_CONFIG,
                      "layer '%s': its input %s has one number a channel, which has no "
                      "variance; take a larger batch",
                      layer->name, shape_print(in).text);
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
