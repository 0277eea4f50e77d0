/* inner_product: every output is a weighted sum of all inputs of its sample. The matrix
 * products are cuBLASLt's; in float32 they also add the bias and apply a plain relu.
 *
 * cuBLASLt's matrices are column-major and ours are row-major, so ours are seen as
 * transposed: samples X are features x batch, weights W features x outputs, and results
 * Y outputs x batch. */
#include <stdio.h>

#include "product.h"
#include "weighted.h"

typedef struct inner {
    weighted w;
    int64_t batch, features;
    int fused; /* 1: forward includes bias and activation */
    product forward, backward_data, backward_weights;
} inner;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(inner), out);
    if (status == DLC_OK)
        linear_read(args, &((weighted *)*out)->linear);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    inner *p = (inner *)layer;
    dlc_status status = inner_product_infer(layer, &p->w.linear, layer->net->precision,
                                            shapes);
    p->batch = shapes->out[0].shape.dims[0];
    p->features = p->w.linear.shape.dims[1];
    return status;
}

/* Y = W' X, with bias and relu if `fused`. */
static dlc_status make_forward(inner *in, int fused) {
    const weighted *w = &in->w;
    const product_shape shape = {.rows = w->linear.num_output,
                                 .columns = in->batch,
                                 .depth = in->features,
                                 .transpose_a = 1,
                                 .dtype = w->head.net->precision,
                                 .out_dtype = w->head.net->precision,
                                 .bias = fused && w->linear.has_bias,
                                 .relu = fused && w->relu.on};
    in->fused = fused;
    return product_make(&in->forward, w->head.net, w->head.name, "do its forward pass",
                        &shape);
}

/* cuBLASLt adds a float32 bias to float32 sums; its only activation is the plain
 * relu. */
static int can_fuse(const weighted *w) {
    const bounds *limit = &w->relu.bounds;
    int plain = limit->low == 0 && limit->slope == 0 && limit->high == INFINITY;
    return w->head.net->precision == DLC_F32 && (!w->relu.on || plain);
}

/* dW = X dY', always in float32; dX = W dY. */
static dlc_status make_backward(inner *in, int data) {
    const weighted *w = &in->w;
    context *net = w->head.net;
    const product_shape weights = {.rows = in->features,
                                   .columns = w->linear.num_output,
                                   .depth = in->batch,
                                   .transpose_b = 1,
                                   .dtype = net->precision,
                                   .out_dtype = DLC_F32};
    const product_shape samples = {.rows = in->features,
                                   .columns = in->batch,
                                   .depth = w->linear.num_output,
                                   .dtype = net->precision,
                                   .out_dtype = net->precision};
    dlc_status status = product_make(&in->backward_weights, net, w->head.name,
                                     "do its backward pass to the weights", &weights);
    if (status == DLC_OK && data)
        status = product_make(&in->backward_data, net, w->head.name,
                              "do its backward pass to the data", &samples);
    return status;
}

/* Images are always read channels last, so the weights have that order too. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    inner *in = (inner *)layer;
    weighted *w = &in->w;
    context *net = layer->net;
    const dlc_shape *shape = &memory->in[0].shape;
    w->channels = w->padded = shape->dims[1];
    w->points = in->features / w->channels;
    w->src = layout_last(net, shape, net->precision);
    w->dst = layout_plain(net, &memory->out[0].shape, net->precision);
    if (!w->src || !w->dst)
        return DLC_ERR_NOMEM;
    dlc_status status = make_forward(in, can_fuse(w));
    if (status == DLC_ERR_UNSUPPORTED && in->fused)
        status = make_forward(in, 0);
    if (status == DLC_OK && layer->phase == DLC_PHASE_TRAIN)
        status = make_backward(in, (memory->wants_gradient & 1) != 0);
    if (status != DLC_OK)
        return status;
    size_t scratch = max_size(
        in->forward.scratch_bytes,
        max_size(in->backward_data.scratch_bytes, in->backward_weights.scratch_bytes));
    weighted_plan(w, memory, 0, scratch);
    if (gradient_is_shared(memory, 0))
        memory->accumulates_gradient = 1;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const inner *in = (const inner *)layer;
    const weighted *w = &in->w;
    dlc_status status = weighted_copy(w, run);
    if (status == DLC_OK)
        status = product_run(&in->forward, weighted_weights(w, run), run->in[0],
                             w->linear.has_bias ? run->param[1] : NULL, 0, run->out[0],
                             weighted_scratch(w, run));
    if (status == DLC_OK && !in->fused && (w->linear.has_bias || w->relu.on))
        status = weighted_bias_forward(w, run);
    return status;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const inner *in = (const inner *)layer;
    const weighted *w = &in->w;
    dlc_status status = DLC_OK;
    if (begins_backward(layer, run))
        status = weighted_bias_backward(w, run);
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_WEIGHTS))
        status = product_run(&in->backward_weights, run->in[0], run->out_diff[0], NULL,
                             0, run->param_diff[0], weighted_scratch(w, run));
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        status = product_run(&in->backward_data, weighted_weights(w, run),
                             run->out_diff[0], NULL, accumulates_into(run, 0),
                             run->in_diff[0], weighted_scratch(w, run));
    return status;
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const inner *in = (const inner *)layer;
    (void)snprintf(text, bytes, "cublasLt %s%s%s%s", layout_name(in->w.src),
                   in->fused || !(in->w.linear.has_bias || in->w.relu.on) ? ""
                                                                          : " then",
                   in->w.linear.has_bias ? " +bias" : "", relu_text(&in->w.relu));
}

static void destroy(dlc_layer *layer) {
    inner *in = (inner *)layer;
    if (!in)
        return;
    product_clear(&in->forward);
    product_clear(&in->backward_data);
    product_clear(&in->backward_weights);
    layer_free(layer);
}

const dlc_layer_ops inner_product_ops = {
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
