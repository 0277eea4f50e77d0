/* lrn: local response normalisation, x / (k + alpha / n * sum x^2)^beta, the sum over
 * neighbouring channels or over the neighbourhood in the image (n: how many there
 * are), as Caffe defines it. */
#include <string.h>

#include "op_layer.h"

typedef struct lrn {
    op_layer ops;
    pd_lrn how;
} lrn;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    int64_t size = host->get_int(settings, "local_size");
    if (size % 2 == 0)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': local_size = %lld must be odd, so that its middle "
            "is the element itself",
            args->name, (long long)size);
    dlc_status status = layer_alloc(args, sizeof(lrn), out);
    if (status != DLC_OK)
        return status;
    /* A single element is its own neighbourhood either way; and oneDNN 2.6 crashes when
     * it compiles that across channels. */
    const char *region = size == 1 ? "within_channel"
                                   : host->get_string(settings, "norm_region");
    ((lrn *)*out)->how = (pd_lrn){
        .kind = strcmp(region, "within_channel") == 0 ? dnnl_lrn_within_channel
                                                      : dnnl_lrn_across_channels,
        .size = size,
        .alpha = (float)host->get_float(settings, "alpha"),
        .beta = (float)host->get_float(settings, "beta"),
        .k = (float)host->get_float(settings, "k"),
    };
    return DLC_OK;
}

static dnnl_status_t forward_pd(const dlc_layer *layer, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t dst,
                                dnnl_primitive_desc_t *pd) {
    (void)dst; /* the same */
    return pd_lrn_forward(env, prop, &((const lrn *)layer)->how, src, pd);
}

static dnnl_status_t backward_pd(const dlc_layer *layer, const pd_env *env,
                                 md_t diff_src, md_t diff_dst,
                                 dnnl_primitive_desc_t *pd) {
    (void)diff_dst;
    return pd_lrn_backward(env, &((const lrn *)layer)->how, diff_src, pd);
}

static const op_layer_kind kind = {forward_pd, backward_pd};

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->reads_in = layer->phase == DLC_PHASE_TRAIN;
    return op_layer_prepare(layer, &kind, memory);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (!run->in_diff[0])
        return DLC_OK;
    return OP_RUN(
        &((lrn *)layer)->ops.backward, {DNNL_ARG_SRC, run->in[0]},
        {DNNL_ARG_DIFF_DST, run->out_diff[0]}, {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
        {DNNL_ARG_WORKSPACE, run->workspace}, {DNNL_ARG_SCRATCHPAD, run->scratch});
}

const dlc_layer_ops lrn_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = op_layer_destroy,
    .infer = infer_image,
    .prepare = prepare,
    .forward = op_layer_forward,
    .backward = backward,
    .describe = op_layer_describe,
};
