/* Options and parameters of batch_norm. The running averages are parameters without a
 * gradient. */
#include "norm.h"

#include "join.h"

static void read_settings(norm_layer *norm, const dlc_settings *settings) {
    norm_settings *n = &norm->how;
    n->epsilon = (float)host->get_float(settings, "eps");
    n->momentum = (float)host->get_float(settings, "momentum");
    n->affine = host->get_bool(settings, "scale_bias");
    n->fixed = norm->head.frozen || host->get_bool(settings, "use_global_stats");
    n->global = option_is(settings, "statistics", "global");
    n->scale = param_read(settings, "scale");
    n->bias = param_read(settings, "bias");
}

dlc_status norm_layer_alloc(const dlc_layer_args *args, size_t bytes,
                            dlc_layer **layer) {
    dlc_status status = layer_alloc(args, bytes, layer);
    if (status == DLC_OK)
        read_settings((norm_layer *)*layer, args->settings);
    return status;
}

int norm_by_batch(const norm_layer *norm) {
    return norm->head.phase == DLC_PHASE_TRAIN && !norm->how.fixed;
}

int norm_by_group(const norm_layer *norm) {
    return norm_by_batch(norm) && norm->how.global && norm->head.group;
}

int norm_reads_in(const norm_layer *norm) {
    return norm_by_batch(norm) ||
           (norm->how.affine && has_weight_gradient(&norm->head));
}

int norm_reads_out(const norm_layer *norm) {
    return norm->how.relu.on && (norm->how.fused_sum || !norm_reads_in(norm));
}

const char *norm_statistics_text(const norm_layer *norm) {
    return norm_by_batch(norm) && norm->how.global ? ", global statistics" : "";
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

dlc_status norm_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    norm_layer *norm = (norm_layer *)layer;
    dlc_status status = infer_one(layer, shapes, 2, 5);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    norm->how.channels = in->dims[1];
    norm->how.samples = dlc_shape_count(in) / norm->how.channels;
    shapes->collective = norm_by_batch(norm) && norm->how.global;
    describe_params(&norm->how, shapes);
    /* How many ranks there are is not known before prepare. */
    return shapes->collective ? DLC_OK : norm_check_batch(norm, in);
}

dlc_status norm_check_batch(const norm_layer *norm, const dlc_shape *in) {
    if (!norm_by_batch(norm) || norm_by_group(norm) || norm->how.samples > 1)
        return DLC_OK;
    return host->fail(DLC_ERR_CONFIG,
                      "layer '%s': its input %s has one number a channel, which has no "
                      "variance; take a larger batch",
                      norm->head.name, shape_print(in).text);
}

dlc_status norm_fuse(dlc_layer *layer, const dlc_feature *next,
                     const dlc_settings *settings) {
    norm_settings *n = &((norm_layer *)layer)->how;
    if (!eltwise_is_sum(next, settings))
        return relu_or_clip_fuse(&n->relu, next, settings);
    if (n->fused_sum || n->relu.on)
        return DLC_ERR_UNSUPPORTED;
    n->fused_sum = 1;
    return DLC_OK;
}
