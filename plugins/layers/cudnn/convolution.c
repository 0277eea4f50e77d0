/* convolution, as up to four cuDNN graphs: forward with bias and activation (if there
 * is no engine for all of it, a kernel of our own adds them), backward_data,
 * backward_weights, and a variant of backward_data that accumulates.
 *
 * A convolution without bias and activation is most likely read by a batch_norm. In
 * half precision cuDNN can sum up channels and their squares while it computes them;
 * the layout of the output says where these sums are, so that the reader need not
 * compute them.
 *
 * The accumulating graph is for inputs that other layers read too, as at the fork of a
 * residual net: it adds to the gradient that they have written. */
#include <stdio.h>
#include <string.h>

#include "filters.h"

typedef struct convolution {
    weighted w;
    filters filters; /* direct: neither Winograd nor FFT */
    filters product; /* the same, or over blocks of pixels (fold.h) */
    int fused;       /* 1: the forward plan includes bias and activation */
    cudnn_plan forward, backward_data, accumulate_data, backward_weights;
    filters_tensors at;
    graph_tensor bias, sums, squares; /* of the forward plan, or 0 */
    dlc_memory sums_memory;           /* device memory of both sums */
    channel_sums sums_at;             /* pointers into it */
} convolution;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(convolution), &layer);
    if (status != DLC_OK)
        return status;
    convolution *conv = (convolution *)layer;
    linear_read(args, &conv->w.linear);
    status = convolution_read(layer->name, args->settings, &conv->filters);
    if (status == DLC_OK)
        *out = layer;
    else
        layer_free(layer);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    convolution *conv = (convolution *)layer;
    return convolution_infer(layer, &conv->w.linear, &conv->filters,
                             layer->net->precision, shapes);
}

/* ---- Plans ------------------------------------------------------------------- */

/* Are factors rounded to fewer bits than float32's, as tensor cores need them? */
static int is_rounded(const context *net) {
    return net->precision != DLC_F32 || net->math & DLC_MATH_TF32;
}

/* May the images be rearranged? Not if their writer chose a layout or wants a gradient.
 */
static int is_free(const convolution *conv, const dlc_layer_memory *memory) {
    return is_rounded(conv->w.head.net) && conv->filters.group == 1 &&
           !memory->in[0].layout && !(memory->wants_gradient & 1);
}

/* Engines of tensor cores read four channels or more at once: images of fewer (colours)
 * are padded by the reorder, so that not every pass has to do it. */
enum { COLOURS = 4, BYTES_AT_ONCE = 16 };

/* Sets how weights and images are arranged, as in the net that trains if there is one.
 */
static void arrange(convolution *conv, const dlc_layer_memory *memory) {
    weighted *w = &conv->w;
    const weighted *train_layer = (const weighted *)w->head.train_layer;
    const int64_t *in = memory->in[0].shape.dims, *out = memory->out[0].shape.dims;
    int at_once = BYTES_AT_ONCE / (int)dlc_dtype_bytes(w->head.net->precision);
    int may = train_layer && train_layer->padded
                  ? train_layer->fold.stride || train_layer->padded != w->channels
                  : is_free(conv, memory);
    conv->product = conv->filters;
    w->padded = w->channels;
    memset(&w->fold, 0, sizeof w->fold);
    if (may &&
        !fold_make(&w->fold, in[1], in + 2, out + 2, at_once, &conv->product.window))
        w->padded = w->channels < COLOURS ? COLOURS : w->channels;
}

static void add_forward(convolution *conv, graph *g, int fused) {
    const weighted *w = &conv->w;
    int bias = fused && w->linear.has_bias, relu = fused && w->relu.on;
    filters_add(g, w, &conv->product, 0, &conv->at);
    graph_tensor product = bias || relu ? graph_virtual(g, conv->at.y) : conv->at.y;
    graph_convolution(g, GRAPH_FORWARD, &conv->product.window, conv->at.x,
                      conv->at.weights, product);
    if (bias) {
        graph_tensor sum = relu ? graph_virtual(g, conv->at.y) : conv->at.y;
        conv->bias = graph_last(g, w->head.net->precision, 1, w->linear.num_output, 1,
                                1);
        graph_add(g, product, conv->bias, sum);
        product = sum;
    }
    if (relu)
        graph_bounds(g, &w->relu.bounds, product, conv->at.y);
}

static void add_statistics(convolution *conv, graph *g) {
    int64_t channels = conv->w.linear.num_output;
    conv->sums = graph_last(g, DLC_F32, 1, channels, 1, 1);
    conv->squares = graph_last(g, DLC_F32, 1, channels, 1, 1);
    graph_statistics(g, conv->at.y, conv->sums, conv->squares);
}

static dlc_status plan_forward(convolution *conv, int fused, int statistics) {
    const plan_bounds limit = filters_bounds(&conv->w, &conv->product);
    graph g;
    graph_open(&g, conv->w.head.net, conv->w.head.name, "do its forward pass");
    conv->bias = conv->sums = conv->squares = 0;
    add_forward(conv, &g, fused);
    if (statistics)
        add_statistics(conv, &g);
    dlc_status status = graph_plan(&g, &limit, &conv->forward);
    graph_close(&g);
    conv->fused = fused;
    return status;
}

static dlc_status plan_backward(convolution *conv, graph_conv which, const char *what,
                                cudnn_plan *p) {
    return filters_plan(&conv->w, &conv->product, 0, which, what, &conv->at, p);
}

/* The sums need memory of their own: the next forward pass overwrites it, but no other
 * layer does. */
static dlc_status alloc_sums(convolution *conv) {
    context *net = conv->w.head.net;
    size_t bytes = round64((size_t)conv->w.linear.num_output * sizeof(float));
    dlc_status status = DLC_OK;
    conv->sums_memory.size = sizeof conv->sums_memory;
    if (!net->description)
        status = net->device_ops->alloc(net->device_at, 2 * bytes, 0,
                                        &conv->sums_memory);
    if (status != DLC_OK)
        return status;
    if (conv->sums_memory.base) {
        conv->sums_at.sum = conv->sums_memory.base;
        conv->sums_at.squares = at_offset(conv->sums_memory.base, bytes);
    }
    conv->w.dst = layout_summed(net, conv->w.dst, &conv->sums_at);
    return conv->w.dst ? DLC_OK : DLC_ERR_NOMEM;
}

/* Not for images of few channels, for which cuDNN's engine with statistics takes twice
 * as long as one without (first layer of ResNet-50 on an H100: 3.8 ms and 1.9 ms),
 * while batch_norm would read only a tenth of that again. */
static int wants_statistics(const convolution *conv) {
    const weighted *w = &conv->w;
    return w->padded == w->channels && !w->fold.stride &&
           w->head.net->precision == DLC_F16 && w->head.phase == DLC_PHASE_TRAIN &&
           !w->linear.has_bias && !w->relu.on && !w->dst->plain;
}

static dlc_status make_forward(convolution *conv) {
    int bias_or_relu = conv->w.linear.has_bias || conv->w.relu.on;
    if (wants_statistics(conv)) {
        dlc_status status = plan_forward(conv, 0, 1);
        if (status != DLC_ERR_UNSUPPORTED)
            return status == DLC_OK ? alloc_sums(conv) : status;
    }
    dlc_status status = plan_forward(conv, bias_or_relu, 0);
    return bias_or_relu && status == DLC_ERR_UNSUPPORTED ? plan_forward(conv, 0, 0)
                                                         : status;
}

static dlc_status make_plans(convolution *conv, dlc_layer_memory *memory) {
    const weighted *w = &conv->w;
    dlc_status status = make_forward(conv);
    if (status != DLC_OK || w->head.phase != DLC_PHASE_TRAIN)
        return status;
    status = plan_backward(conv, GRAPH_BACKWARD_WEIGHTS,
                           "do its backward pass to the weights",
                           &conv->backward_weights);
    if (status == DLC_OK && (memory->wants_gradient & 1))
        status = plan_backward(conv, GRAPH_BACKWARD_DATA,
                               "do its backward pass to the data",
                               &conv->backward_data);
    if (status != DLC_OK || !gradient_is_shared(memory, 0))
        return status;
    status = plan_backward(conv, GRAPH_ACCUMULATE_DATA,
                           "add to the gradient of its data", &conv->accumulate_data);
    if (status == DLC_OK)
        memory->accumulates_gradient = 1;
    return status == DLC_ERR_UNSUPPORTED ? DLC_OK : status;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    convolution *conv = (convolution *)layer;
    weighted *w = &conv->w;
    context *net = layer->net;
    w->channels = w->linear.shape.dims[1];
    w->points = conv->filters.window.kernel[0] * conv->filters.window.kernel[1];
    arrange(conv, memory);
    w->src = w->fold.stride
                 ? layout_folded(net, &memory->in[0].shape, net->precision, &w->fold)
                 : layout_padded(net, &memory->in[0].shape, net->precision,
                                 w->padded * conv->filters.group);
    w->dst = layout_last(net, &memory->out[0].shape, net->precision);
    if (!w->src || !w->dst)
        return DLC_ERR_NOMEM;
    dlc_status status = make_plans(conv, memory);
    if (status != DLC_OK)
        return status;
    size_t scratch = max_size(
        max_size(conv->forward.scratch_bytes, conv->backward_data.scratch_bytes),
        max_size(conv->accumulate_data.scratch_bytes,
                 conv->backward_weights.scratch_bytes));
    weighted_plan(w, memory, 1, scratch);
    return DLC_OK;
}

/* ---- Forward and backward ------------------------------------------------------- */

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    convolution *conv = (convolution *)layer;
    const weighted *w = &conv->w;
    dlc_status status = weighted_copy(w, run);
    if (status == DLC_OK)
        status = PLAN_RUN(
            &conv->forward, weighted_scratch(w, run), {conv->at.x, run->in[0]},
            {conv->at.weights, weighted_weights(w, run)},
            {conv->bias, weighted_bias(w, run)}, {conv->at.y, run->out[0]},
            {conv->sums, conv->sums_at.sum}, {conv->squares, conv->sums_at.squares});
    if (status == DLC_OK && !conv->fused && (w->linear.has_bias || w->relu.on))
        status = weighted_bias_forward(w, run);
    return status;
}

static dlc_status backward_weights(convolution *conv, const dlc_layer_run *run) {
    const weighted *w = &conv->w;
    dlc_status status = PLAN_RUN(
        &conv->backward_weights, weighted_scratch(w, run), {conv->at.x, run->in[0]},
        {conv->at.weights, weighted_gradient(w, run)}, {conv->at.y, run->out_diff[0]});
    return status == DLC_OK ? weighted_copy_back(w, run) : status;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    convolution *conv = (convolution *)layer;
    const weighted *w = &conv->w;
    dlc_status status = DLC_OK;
    if (begins_backward(layer, run))
        status = weighted_bias_backward(w, run);
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_WEIGHTS))
        status = backward_weights(conv, run);
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        status = PLAN_RUN(accumulates_into(run, 0) ? &conv->accumulate_data
                                                   : &conv->backward_data,
                          weighted_scratch(w, run), {conv->at.x, run->in_diff[0]},
                          {conv->at.weights, weighted_weights(w, run)},
                          {conv->at.y, run->out_diff[0]});
    return status;
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const convolution *conv = (const convolution *)layer;
    if (!conv->forward.plan) {
        (void)snprintf(text, bytes, "not prepared");
        return;
    }
    (void)snprintf(text, bytes, "engine %lld%s %s%s%s%s%s%s",
                   (long long)conv->forward.engine,
                   conv->forward.compiled ? " compiled" : "", layout_name(conv->w.dst),
                   conv->w.fold.stride ? " folded" : "",
                   conv->fused || !conv->w.relu.on ? "" : " then",
                   conv->w.linear.has_bias && conv->fused ? " +bias" : "",
                   relu_text(&conv->w.relu), conv->sums ? " +statistics" : "");
}

static void destroy(dlc_layer *layer) {
    convolution *conv = (convolution *)layer;
    if (!conv)
        return;
    plan_clear(&conv->forward);
    plan_clear(&conv->backward_data);
    plan_clear(&conv->accumulate_data);
    plan_clear(&conv->backward_weights);
    if (conv->sums_memory.base)
        layer->net->device_ops->free(layer->net->device_at, &conv->sums_memory);
    layer_free(layer);
}

const dlc_layer_ops convolution_ops = {
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
