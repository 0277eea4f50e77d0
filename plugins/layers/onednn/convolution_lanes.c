/* See convolution_lanes.h. Weights are plain here; what reads them in another layout
 * (a test net whose batch is no multiple of the lanes) reorders them. */
#include "convolution_lanes.h"
#include "isa.h"

#include <stdio.h>

static const lanes_kernels *kernels_here(void) {
    static const lanes_kernels *const all[] = {
        [ISA_BASE] = &lanes_base,
#ifdef __x86_64__
        [ISA_AVX2] = &lanes_avx2,
        [ISA_AVX512] = &lanes_avx512,
#endif
    };
    return all[isa_here()];
}

static lanes_conv describe_shape(const sliding_window *window, int64_t group,
                                 const dlc_shape *in, const dlc_shape *out) {
    lanes_conv conv = {
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

int convolution_lanes_fits(const weighted *w, const sliding_window *window,
                           int64_t group, const dlc_layer_plan *plan, int forced,
                           convolution_lanes *lanes) {
    const weighted *twin = (const weighted *)w->head.twin;
    const lanes_kernels *kernels = kernels_here();
    if (twin && twin->weights && !twin->weights->plain)
        return 0;
    lanes->conv = describe_shape(window, group, &plan->in[0].shape,
                                 &plan->out[0].shape);
    return lanes_possible(&lanes->conv, kernels) &&
           (forced || lanes_worthwhile(&lanes->conv));
}

dlc_status convolution_lanes_prepare(weighted *w, convolution_lanes *lanes,
                                     dlc_layer_plan *plan, const dlc_shape *weights) {
    context *net = w->head.net;
    lanes_conv *conv = &lanes->conv;
    const lanes_kernels *kernels = kernels_here();
    w->src = layout_lanes(net, &plan->in[0].shape, kernels->lanes);
    w->dst = layout_lanes(net, &plan->out[0].shape, kernels->lanes);
    const dlc_shape bias = {.rank = 1, .dims = {w->num_output}};
    w->weights = layout_plain(net, weights, DLC_F32);
    w->bias = layout_plain(net, &bias, DLC_F32);
    lanes->tables = host->alloc(lanes_conv_table_bytes(conv));
    if (!w->src || !w->dst || !w->weights || !w->bias || !lanes->tables)
        return DLC_ERR_NOMEM;
    lanes_conv_tables(conv, kernels, lanes->tables);
    conv->relu = w->relu.on;
    conv->slope = w->relu.bounds.slope;
    layout_give(&plan->in[0], w->src);
    layout_give(&plan->out[0], w->dst);
    lanes->space_bytes = round64(lanes_conv_space(conv));
    if (w->head.phase != DLC_PHASE_TRAIN) {
        plan->scratch_bytes = lanes->space_bytes;
        return DLC_OK;
    }
    plan->workspace_bytes = lanes->space_bytes;
    plan->scratch_bytes = lanes->space_bytes;
    plan->reads_in = lanes->space_bytes == 0;
    plan->reads_out = w->relu.on;
    return DLC_OK;
}

dlc_status convolution_lanes_forward(weighted *w, const convolution_lanes *lanes,
                                     const dlc_layer_run *run) {
    int train = w->head.phase == DLC_PHASE_TRAIN;
    lanes->conv.kernels->forward(&lanes->conv, run->in[0], run->param[0],
                                 w->has_bias ? run->param[1] : NULL, run->out[0],
                                 train ? run->workspace : run->scratch);
    return DLC_OK;
}

dlc_status convolution_lanes_backward(weighted *w, const convolution_lanes *lanes,
                                      const dlc_layer_run *run) {
    const lanes_kernels *kernels = lanes->conv.kernels;
    float *diff = run->out_diff[0];
    if (wants_part(run, DLC_PART_PARAM)) {
        if (w->relu.on)
            relu_mask(&w->relu, DLC_F32, layout_count(w->dst), run->out[0], diff);
        kernels->backward_weights(&lanes->conv, run->in[0], diff, run->param_diff[0],
                                  w->has_bias ? run->param_diff[1] : NULL,
                                  run->workspace);
    }
    if (wants_part(run, DLC_PART_DATA) && run->in_diff[0])
        kernels->backward_data(&lanes->conv, diff, run->param[0], run->in_diff[0],
                               run->scratch);
    return DLC_OK;
}

void convolution_lanes_describe(const weighted *w, const convolution_lanes *lanes,
                                char *text, size_t bytes) {
    (void)snprintf(text, bytes, "own:%s lanes%s", lanes->conv.kernels->name,
                   w->relu.on ? " +relu" : "");
}
