/* deconvolution: a transposed convolution, which is to a convolution's output as its
 * backward pass is. oneDNN has weights as convolutions do, outputs first; they are
 * stored with the channels of the input first. */
#include "weighted.h"

typedef struct deconvolution {
    weighted w;
    filters filters;
} deconvolution;

static const sliding_window *window_of(const weighted *w) {
    return &((const deconvolution *)w)->filters.window;
}

static dnnl_status_t forward_pd(const weighted *w, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t weights,
                                md_t bias, md_t dst, dnnl_primitive_desc_t *pd) {
    return pd_deconv_forward(env, prop, window_of(w), src, weights, bias, dst, pd);
}

static dnnl_status_t backward_data_pd(const weighted *w, const pd_env *env,
                                      md_t diff_src, md_t weights, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd) {
    return pd_deconv_backward_data(env, window_of(w), diff_src, weights, diff_dst, pd);
}

static dnnl_status_t backward_weights_pd(const weighted *w, const pd_env *env, md_t src,
                                         md_t diff_weights, md_t diff_bias,
                                         md_t diff_dst, dnnl_primitive_desc_t *pd) {
    return pd_deconv_backward_weights(env, window_of(w), src, diff_weights, diff_bias,
                                      diff_dst, pd);
}

static const weighted_kind kind = {
    .forward = forward_pd,
    .backward_data = backward_data_pd,
    .backward_weights = backward_weights_pd,
    .stored = layout_transposed,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(deconvolution), &layer);
    if (status != DLC_OK)
        return status;
    deconvolution *deconv = (deconvolution *)layer;
    linear_read(args, &deconv->w.linear);
    deconv->w.kind = &kind;
    status = deconvolution_read(layer->name, args->settings, &deconv->filters);
    if (status == DLC_OK)
        *out = layer;
    else
        layer_free(layer);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    deconvolution *deconv = (deconvolution *)layer;
    return deconvolution_infer(layer, &deconv->w.linear, &deconv->filters,
                               layer->net->precision, shapes);
}

/* Weights as oneDNN sees them. */
static dlc_shape weights_shape(const deconvolution *deconv) {
    const int64_t *own = deconv->w.linear.shape.dims;
    int64_t group = deconv->filters.group;
    if (group == 1)
        return (dlc_shape){4, {own[1], own[0], own[2], own[3]}};
    return (dlc_shape){5, {group, own[1], own[0] / group, own[2], own[3]}};
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    deconvolution *deconv = (deconvolution *)layer;
    context *net = layer->net;
    const dlc_shape weights = weights_shape(deconv);
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    const weighted_choice choices[] = {{.src = layout_last(net, in, net->precision),
                                        .dst = layout_last(net, out, net->precision)},
                                       {.src = layout_any(net, in, net->precision),
                                        .dst = layout_any(net, out, net->precision)}};
    for (int i = 0; i < 2; i++)
        if (!choices[i].src || !choices[i].dst)
            return DLC_ERR_NOMEM;
    return weighted_prepare(&deconv->w, memory, &weights, choices, 2);
}

const dlc_layer_ops deconvolution_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = weighted_destroy,
    .infer = infer,
    .prepare = prepare,
    .forward = weighted_forward,
    .backward = weighted_backward,
    .param_import = weighted_import,
    .param_export = weighted_export,
    .describe = weighted_describe,
};
