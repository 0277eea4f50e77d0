/* deconvolution: a transposed convolution, as cuDNN graphs of a convolution with the
 * directions swapped (filters.h). cuDNN adds nothing to what goes backward to the data,
 * so bias and activation are added by a kernel of our own. */
#include <stdio.h>

#include "filters.h"

typedef struct deconvolution {
    weighted w;
    filters filters;
    cudnn_plan forward, backward_data, backward_weights;
    filters_tensors at;
} deconvolution;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(deconvolution), &layer);
    if (status != DLC_OK)
        return status;
    deconvolution *deconv = (deconvolution *)layer;
    linear_read(args, &deconv->w.linear);
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

/* ---- Plans ------------------------------------------------------------------- */

static dlc_status plan(deconvolution *deconv, graph_conv which, const char *what,
                       cudnn_plan *p) {
    return filters_plan(&deconv->w, &deconv->filters, 1, which, what, &deconv->at, p);
}

static dlc_status make_plans(deconvolution *deconv, const dlc_layer_memory *memory) {
    const dlc_layer *head = &deconv->w.head;
    dlc_status status = plan(deconv, GRAPH_BACKWARD_DATA, "do its forward pass",
                             &deconv->forward);
    if (status == DLC_OK && has_weight_gradient(head))
        status = plan(deconv, GRAPH_BACKWARD_WEIGHTS,
                      "do its backward pass to the weights", &deconv->backward_weights);
    if (status == DLC_OK && head->phase == DLC_PHASE_TRAIN &&
        (memory->wants_gradient & 1))
        status = plan(deconv, GRAPH_FORWARD, "do its backward pass to the data",
                      &deconv->backward_data);
    return status;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    deconvolution *deconv = (deconvolution *)layer;
    weighted *w = &deconv->w;
    context *net = layer->net;
    w->channels = w->padded = w->linear.shape.dims[1];
    w->points = deconv->filters.window.kernel[0] * deconv->filters.window.kernel[1];
    w->src = layout_last(net, &memory->in[0].shape, net->precision);
    w->dst = layout_last(net, &memory->out[0].shape, net->precision);
    if (!w->src || !w->dst)
        return DLC_ERR_NOMEM;
    dlc_status status = make_plans(deconv, memory);
    if (status == DLC_OK)
        weighted_plan(w, memory, 1,
                      max_size(deconv->forward.scratch_bytes,
                               max_size(deconv->backward_data.scratch_bytes,
                                        deconv->backward_weights.scratch_bytes)));
    return status;
}

/* ---- Forward and backward ---------------------------------------------------- */

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    deconvolution *deconv = (deconvolution *)layer;
    const weighted *w = &deconv->w;
    dlc_status status = weighted_copy(w, run);
    if (status == DLC_OK)
        status = PLAN_RUN(
            &deconv->forward, weighted_scratch(w, run), {deconv->at.x, run->out[0]},
            {deconv->at.weights, weighted_weights(w, run)}, {deconv->at.y, run->in[0]});
    if (status == DLC_OK && (w->linear.has_bias || w->relu.on))
        status = weighted_bias_forward(w, run);
    return status;
}

static dlc_status backward_weights(deconvolution *deconv, const dlc_layer_run *run) {
    const weighted *w = &deconv->w;
    dlc_status status = PLAN_RUN(&deconv->backward_weights, weighted_scratch(w, run),
                                 {deconv->at.x, run->out_diff[0]},
                                 {deconv->at.weights, weighted_gradient(w, run)},
                                 {deconv->at.y, run->in[0]});
    return status == DLC_OK ? weighted_copy_back(w, run) : status;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    deconvolution *deconv = (deconvolution *)layer;
    const weighted *w = &deconv->w;
    dlc_status status = DLC_OK;
    if (begins_backward(layer, run))
        status = weighted_bias_backward(w, run);
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_WEIGHTS))
        status = backward_weights(deconv, run);
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        status = PLAN_RUN(&deconv->backward_data, weighted_scratch(w, run),
                          {deconv->at.x, run->out_diff[0]},
                          {deconv->at.weights, weighted_weights(w, run)},
                          {deconv->at.y, run->in_diff[0]});
    return status;
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const deconvolution *deconv = (const deconvolution *)layer;
    const weighted *w = &deconv->w;
    if (!deconv->forward.plan) {
        (void)snprintf(text, bytes, "not prepared");
        return;
    }
    (void)snprintf(text, bytes, "engine %lld%s %s%s%s%s",
                   (long long)deconv->forward.engine,
                   deconv->forward.compiled ? " compiled" : "", layout_name(w->dst),
                   w->linear.has_bias || w->relu.on ? " then" : "",
                   w->linear.has_bias ? " +bias" : "", relu_text(&w->relu));
}

static void destroy(dlc_layer *layer) {
    deconvolution *deconv = (deconvolution *)layer;
    if (!deconv)
        return;
    plan_clear(&deconv->forward);
    plan_clear(&deconv->backward_data);
    plan_clear(&deconv->backward_weights);
    layer_free(layer);
}

const dlc_layer_ops deconvolution_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = destroy,
    .infer = infer,
    .fuse = weighted_fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .param_import = weighted_import,
    .param_export = weighted_export,
    .describe = describe,
};
