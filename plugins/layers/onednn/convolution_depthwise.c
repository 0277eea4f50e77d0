/* Depthwise convolution by our own kernels. Weights are plain here; a test net that
 * uses another implementation reorders them. */
#include "convolution_depthwise.h"
#include "isa.h"

#include <stdio.h>

static const depthwise_kernels *kernels_here(void) {
    static const depthwise_kernels *const all[] = ISA_TABLES(depthwise_);
    return all[isa_here()];
}

static depthwise_conv describe_shape(const sliding_window *window, const dlc_shape *in,
                                     const dlc_shape *out) {
    depthwise_conv conv = {
        .batch = (size_t)in->dims[0],
        .channels = (size_t)in->dims[1],
    };
    for (int i = 0; i < 2; i++) {
        conv.in[i] = (size_t)in->dims[2 + i];
        conv.out[i] = (size_t)out->dims[2 + i];
        conv.window[i] = (size_t)window->kernel[i];
        conv.stride[i] = (size_t)window->stride[i];
        conv.pad[i] = (size_t)window->pad_begin[i];
    }
    return conv;
}

static int window_fits(const sliding_window *window) {
    for (int i = 0; i < 2; i++)
        if (window->kernel[i] > DEPTHWISE_TAPS ||
            window->stride[i] > DEPTHWISE_STRIDE || window->dilation[i] != 0)
            return 0;
    return 1;
}

/* Whether oneDNN's kernel is faster, which reads blocks of channels only: preparing a
 * row takes ours longer than computing it if the row is short. It needs AVX-512 for
 * bfloat16. */
static int library_is_faster(const dlc_layer *head, const dlc_layer_memory *memory) {
    enum { SHORT_ROW = 32 };
    const dlc_layout *given = layout_of(head->net, &memory->in[0]);
    return given && given->block && memory->in[0].shape.dims[3] <= SHORT_ROW &&
           (given->dtype == DLC_F32 || isa_here() == ISA_AVX512);
}

int convolution_depthwise_fits(const weighted *w, const sliding_window *window,
                               int64_t group, int last, const dlc_layer_memory *memory,
                               convolution_depthwise *depthwise) {
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    const weighted *train = (const weighted *)w->head.train_layer;
    if (group == 1 || in->dims[1] != group || out->dims[1] != group ||
        !window_fits(window) || (train && train->weights && !train->weights->plain) ||
        (!last && library_is_faster(&w->head, memory)))
        return 0;
    depthwise->conv = describe_shape(window, in, out);
    depthwise->kernels = kernels_here();
    return 1;
}

/* Sets the layouts of the images; 0, with an error set, on failure. */
static int choose_layouts(weighted *w, depthwise_conv *conv, int last,
                          const dlc_layer_memory *memory) {
    context *net = w->head.net;
    const dlc_layout *given = layout_of(net, &memory->in[0]);
    if (!given)
        return 0;
    int block = last || given->dtype != net->precision || given->padded ? 0
                                                                        : given->block;
    if (block && block != 4 && block != 8 && block != 16)
        block = 0;
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    w->src = block ? layout_blocked(net, in, net->precision, block)
                   : layout_last(net, in, net->precision);
    w->dst = block ? layout_blocked(net, out, net->precision, block)
                   : layout_last(net, out, net->precision);
    conv->bf16 = net->precision == DLC_BF16;
    conv->side = block ? (size_t)block : conv->channels;
    return w->src && w->dst;
}

dlc_status convolution_depthwise_prepare(weighted *w, convolution_depthwise *depthwise,
                                         int last, dlc_layer_memory *memory,
                                         const dlc_shape *weights) {
    context *net = w->head.net;
    const dlc_shape bias = {.rank = 1, .dims = {w->linear.num_output}};
    int training = w->head.phase == DLC_PHASE_TRAIN;
    w->weights = layout_plain(net, weights, DLC_F32);
    w->bias = layout_plain(net, &bias, DLC_F32);
    if (!choose_layouts(w, &depthwise->conv, last, memory) || !w->weights || !w->bias)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], w->src);
    layout_set(&memory->out[0], w->dst);
    memory->scratch_bytes = depthwise->kernels->space_bytes(&depthwise->conv, training);
    memory->reads_in = has_weight_gradient(&w->head);
    memory->reads_out = training && w->relu.on;
    return DLC_OK;
}

dlc_status convolution_depthwise_forward(weighted *w,
                                         const convolution_depthwise *depthwise,
                                         const dlc_layer_run *run) {
    bounds limit = relu_bounds(&w->relu);
    depthwise->kernels->forward(&depthwise->conv, run->in[0], run->param[0],
                                w->linear.has_bias ? run->param[1] : NULL, &limit,
                                run->out[0], run->scratch);
    return DLC_OK;
}

dlc_status convolution_depthwise_backward(weighted *w,
                                          const convolution_depthwise *depthwise,
                                          const dlc_layer_run *run) {
    const depthwise_kernels *kernels = depthwise->kernels;
    void *diff = run->out_diff[0];
    if (w->relu.on && begins_backward(&w->head, run))
        relu_mask(&w->relu, w->dst->dtype, layout_count(w->dst), run->out[0], diff);
    if (wants_backward(run, DLC_BACKWARD_WEIGHTS))
        kernels->backward_weights(
            &depthwise->conv, run->in[0], diff, run->param_diff[0],
            w->linear.has_bias ? run->param_diff[1] : NULL, run->scratch);
    if (wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        kernels->backward_data(&depthwise->conv, diff, run->param[0], run->in_diff[0],
                               run->scratch);
    return DLC_OK;
}

void convolution_depthwise_describe(const weighted *w,
                                    const convolution_depthwise *depthwise, char *text,
                                    size_t bytes) {
    (void)snprintf(text, bytes, "own:%s depthwise %s%s", depthwise->kernels->name,
                   layout_name(w->dst), w->relu.on ? " +relu" : "");
}
