/* Convolution by our own Winograd transform. Weights are plain here; a test net that
 * uses another implementation reorders them. */
#include "convolution_winograd.h"
#include "isa.h"

#include <omp.h>
#include <stdio.h>

enum { POINTS = 6 };

/* Vectors of four numbers multiply too little to pay for the transforms. */
static const winograd_kernels *kernels_here(void) {
#ifdef __x86_64__
    if (isa_here() == ISA_AVX512)
        return &winograd_avx512;
    if (isa_here() == ISA_AVX2)
        return &winograd_avx2;
#endif
    return NULL;
}

static winograd_conv describe_shape(const sliding_window *window, int64_t group,
                                    const dlc_shape *in, const dlc_shape *out) {
    winograd_conv conv = {
        .threads = (size_t)omp_get_max_threads(),
        .batch = (size_t)in->dims[0],
        .group = (size_t)group,
        .in_channels = (size_t)in->dims[1],
        .out_channels = (size_t)out->dims[1],
        .side = (size_t)window->kernel[0],
    };
    for (int i = 0; i < 2; i++) {
        conv.in[i] = (size_t)in->dims[2 + i];
        conv.out[i] = (size_t)out->dims[2 + i];
        conv.pad[i] = (size_t)window->pad_begin[i];
    }
    return conv;
}

static int window_fits(const sliding_window *window) {
    int64_t side = window->kernel[0];
    if (side != 3 && side != 5)
        return 0;
    for (int i = 0; i < 2; i++)
        if (window->kernel[i] != side || window->stride[i] != 1 ||
            window->dilation[i] != 0 || window->pad_begin[i] >= side)
            return 0;
    return 1;
}

/* How many times fewer multiplications there are, with the transforms counted in
 * multiplications, as measured. */
static double gain(const winograd_conv *conv) {
    const double reads = 6, writes = 4;
    const size_t m = POINTS + 1 - conv->side, area = conv->side * conv->side;
    const size_t all = (size_t)POINTS * POINTS;
    size_t down = (conv->out[0] + m - 1) / m, across = (conv->out[1] + m - 1) / m;
    double taps = (double)(area * conv->out[0] * conv->out[1]);
    double points = (double)(all * down * across);
    const size_t in_group = conv->in_channels / conv->group;
    const size_t out_group = conv->out_channels / conv->group;
    double in = (double)in_group, out = (double)out_group;
    return taps / (points * (1 + reads / out + writes / in));
}

int convolution_winograd_fits(const weighted *w, const sliding_window *window,
                              int64_t group, const dlc_layer_memory *memory,
                              convolution_winograd *winograd) {
    enum { FEWEST_CHANNELS = 32 };
    const double least_gain = 1.6;
    const weighted *train = (const weighted *)w->head.train_layer;
    const winograd_kernels *kernels = kernels_here();
    if (!kernels || !window_fits(window) ||
        (train && train->weights && !train->weights->plain))
        return 0;
    winograd_conv *conv = &winograd->conv;
    *conv = describe_shape(window, group, &memory->in[0].shape, &memory->out[0].shape);
    size_t in = conv->in_channels / conv->group, out = conv->out_channels / conv->group;
    if (in % kernels->lanes || out % kernels->lanes || in < FEWEST_CHANNELS ||
        out < FEWEST_CHANNELS || gain(conv) < least_gain)
        return 0;
    winograd->kernels = kernels;
    return 1;
}

dlc_status convolution_winograd_prepare(weighted *w,
                                        const convolution_winograd *winograd,
                                        dlc_layer_memory *memory,
                                        const dlc_shape *weights) {
    context *net = w->head.net;
    const winograd_kernels *kernels = winograd->kernels;
    const dlc_shape bias = {.rank = 1, .dims = {w->linear.num_output}};
    int training = w->head.phase == DLC_PHASE_TRAIN, lanes = (int)kernels->lanes;
    w->src = layout_blocked(net, &memory->in[0].shape, DLC_F32, lanes);
    w->dst = layout_blocked(net, &memory->out[0].shape, DLC_F32, lanes);
    w->weights = layout_plain(net, weights, DLC_F32);
    w->bias = layout_plain(net, &bias, DLC_F32);
    if (!w->src || !w->dst || !w->weights || !w->bias)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], w->src);
    layout_set(&memory->out[0], w->dst);
    memory->scratch_bytes = kernels->space_bytes(&winograd->conv, training);
    memory->reads_in = has_weight_gradient(&w->head);
    memory->reads_out = training && w->relu.on;
    return DLC_OK;
}

dlc_status convolution_winograd_forward(weighted *w,
                                        const convolution_winograd *winograd,
                                        const dlc_layer_run *run) {
    bounds limit = relu_bounds(&w->relu);
    winograd->kernels->forward(&winograd->conv, run->in[0], run->param[0],
                               w->linear.has_bias ? run->param[1] : NULL, &limit,
                               run->out[0], run->scratch);
    return DLC_OK;
}

dlc_status convolution_winograd_backward(weighted *w,
                                         const convolution_winograd *winograd,
                                         const dlc_layer_run *run) {
    const winograd_kernels *kernels = winograd->kernels;
    float *diff = run->out_diff[0];
    if (w->relu.on && begins_backward(&w->head, run))
        relu_mask(&w->relu, DLC_F32, layout_count(w->dst), run->out[0], diff);
    if (wants_backward(run, DLC_BACKWARD_WEIGHTS))
        kernels->backward_weights(&winograd->conv, run->in[0], diff, run->param_diff[0],
                                  w->linear.has_bias ? run->param_diff[1] : NULL,
                                  run->scratch);
    if (wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        kernels->backward_data(&winograd->conv, diff, run->param[0], run->in_diff[0],
                               run->scratch);
    return DLC_OK;
}

void convolution_winograd_describe(const weighted *w,
                                   const convolution_winograd *winograd, char *text,
                                   size_t bytes) {
    (void)snprintf(text, bytes, "own:%s winograd%s", winograd->kernels->name,
                   w->relu.on ? " +relu" : "");
}
