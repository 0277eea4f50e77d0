/* Convolution in the batch-blocked layout. Weights are plain here; a test net whose
 * batch size does not fit the blocks reorders them. */
#include "convolution_batch_blocked.h"
#include "isa.h"

#include <stdio.h>

static const batch_blocked_kernels *kernels_here(void) {
    static const batch_blocked_kernels *const all[] = ISA_TABLES(batch_blocked_);
    return all[isa_here()];
}

static batch_blocked_conv describe_shape(const sliding_window *window, int64_t group,
                                         const dlc_shape *in, const dlc_shape *out) {
    batch_blocked_conv conv = {
        .batch = (size_t)in->dims[0],
        .group = (size_t)group,
        .in_channels = (size_t)in->dims[1],
        .out_channels = (size_t)out->dims[1],
    };
    for (int i = 0; i < 2; i++) {
        conv.in[i] = (size_t)in->dims[2 + i];
        conv.out[i] = (size_t)out->dims[2 + i];
        conv.kernel[i] = (size_t)window->kernel[i];
        conv.stride[i] = (size_t)window->stride[i];
        conv.step[i] = (size_t)window->dilation[i] + 1;
        conv.pad[i] = (size_t)window->pad_begin[i];
    }
    return conv;
}

int convolution_batch_blocked_fits(const weighted *w, const sliding_window *window,
                                   int64_t group, const dlc_layer_memory *memory,
                                   int forced, convolution_batch_blocked *state) {
    const weighted *train = (const weighted *)w->head.train_layer;
    const batch_blocked_kernels *kernels = kernels_here();
    if (train && train->weights && !train->weights->plain)
        return 0;
    state->conv = describe_shape(window, group, &memory->in[0].shape,
                                 &memory->out[0].shape);
    return batch_blocked_possible(&state->conv, kernels) &&
           (forced || batch_blocked_worthwhile(&state->conv));
}

dlc_status convolution_batch_blocked_prepare(weighted *w,
                                             convolution_batch_blocked *state,
                                             dlc_layer_memory *memory,
                                             const dlc_shape *weights) {
    context *net = w->head.net;
    batch_blocked_conv *conv = &state->conv;
    const batch_blocked_kernels *kernels = kernels_here();
    w->src = layout_batch_blocked(net, &memory->in[0].shape, kernels->lanes);
    w->dst = layout_batch_blocked(net, &memory->out[0].shape, kernels->lanes);
    const dlc_shape bias = {.rank = 1, .dims = {w->linear.num_output}};
    w->weights = layout_plain(net, weights, DLC_F32);
    w->bias = layout_plain(net, &bias, DLC_F32);
    state->tables = host->alloc(batch_blocked_table_bytes(conv));
    if (!w->src || !w->dst || !w->weights || !w->bias || !state->tables)
        return DLC_ERR_NOMEM;
    batch_blocked_tables(conv, kernels, state->tables);
    conv->relu = w->relu.on;
    conv->slope = w->relu.bounds.slope;
    layout_set(&memory->in[0], w->src);
    layout_set(&memory->out[0], w->dst);
    state->space_bytes = round64(batch_blocked_space(conv));
    memory->scratch_bytes = state->space_bytes;
    memory->reads_out = w->head.phase == DLC_PHASE_TRAIN && w->relu.on;
    if (has_weight_gradient(&w->head)) {
        memory->workspace_bytes = state->space_bytes;
        memory->reads_in = state->space_bytes == 0;
    }
    return DLC_OK;
}

dlc_status convolution_batch_blocked_forward(weighted *w,
                                             const convolution_batch_blocked *state,
                                             const dlc_layer_run *run) {
    int keeps = has_weight_gradient(&w->head);
    state->conv.kernels->forward(&state->conv, run->in[0], run->param[0],
                                 w->linear.has_bias ? run->param[1] : NULL, run->out[0],
                                 keeps ? run->workspace : run->scratch);
    return DLC_OK;
}

dlc_status convolution_batch_blocked_backward(weighted *w,
                                              const convolution_batch_blocked *state,
                                              const dlc_layer_run *run) {
    const batch_blocked_kernels *kernels = state->conv.kernels;
    float *diff = run->out_diff[0];
    if (w->relu.on && begins_backward(&w->head, run))
        relu_mask(&w->relu, DLC_F32, layout_count(w->dst), run->out[0], diff);
    if (wants_backward(run, DLC_BACKWARD_WEIGHTS))
        kernels->backward_weights(&state->conv, run->in[0], diff, run->param_diff[0],
                                  w->linear.has_bias ? run->param_diff[1] : NULL,
                                  run->workspace);
    if (wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        kernels->backward_data(&state->conv, diff, run->param[0], run->in_diff[0],
                               run->scratch);
    return DLC_OK;
}

void convolution_batch_blocked_describe(const weighted *w,
                                        const convolution_batch_blocked *state,
                                        char *text, size_t bytes) {
    (void)snprintf(text, bytes, "own:%s batch_blocked%s", state->conv.kernels->name,
                   w->relu.on ? " +relu" : "");
}
