/* batch_norm: brings each channel to mean 0 and variance 1 over the batch, then scales
 * and shifts it by trained numbers. Testing uses running averages instead, which
 * training keeps as parameters without a gradient (DLC_PARAM_BUFFER). The kernels are
 * our own (norm.h); they can fuse a sum and an activation, and support all three
 * element types. */
#include <stdio.h>

#include "norm.h"
#include "relu.h"

typedef struct batch_norm {
    dlc_layer head;
    float epsilon, momentum;
    int affine,
        fixed; /* affine: scale and bias; fixed: use running averages in training too */
    const char *filler[2];
    double rate[2], decay[2];
    int64_t channels, samples; /* samples: numbers per channel in a batch */
    fused_relu relu;
    const dlc_layout *layout;
    const channel_sums *sums; /* of the input, provided by its writer; NULL: none */
    int fused_sum;            /* 1: the sum with a second input is fused */
} batch_norm;

const dlc_option batch_norm_options[] = {
    DLC_FLOAT("eps", "1e-5", 0, 1, "added to the variance before its root is taken"),
    DLC_FLOAT("momentum", "0.9", 0, 1,
              "weight of the old value when a running average is updated"),
    DLC_BOOL("scale_bias", "yes", "scale and shift each channel by trained numbers"),
    DLC_BOOL("use_global_stats", "no",
             "normalize by the running averages in training too, without updating "
             "them"),
    DLC_FILLER("scale_filler", "constant(1)", "how the scale starts"),
    DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"),
    DLC_FLOAT("scale_lr_mult", "1", 0, 1e6,
              "the scale's learning rate is the solver's times this"),
    DLC_FLOAT("scale_decay_mult", "1", 0, 1e6,
              "the scale's weight decay is the solver's times this"),
    DLC_FLOAT("bias_lr_mult", "1", 0, 1e6,
              "the bias' learning rate is the solver's times this"),
    DLC_FLOAT("bias_decay_mult", "1", 0, 1e6,
              "the bias' weight decay is the solver's times this"),
    DLC_OPTIONS_END,
};

static int training(const batch_norm *norm) {
    return norm->head.phase == DLC_PHASE_TRAIN;
}

/* Are mean and variance those of the batch? */
static int by_batch(const batch_norm *norm) {
    return training(norm) && !norm->fixed;
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    dlc_status status = layer_alloc(args, sizeof(batch_norm), out);
    if (status != DLC_OK)
        return status;
    batch_norm *norm = (batch_norm *)*out;
    norm->epsilon = (float)host->get_float(settings, "eps");
    norm->momentum = (float)host->get_float(settings, "momentum");
    norm->affine = host->get_bool(settings, "scale_bias");
    norm->fixed = host->get_bool(settings, "use_global_stats");
    norm->filler[0] = host->get_string(settings, "scale_filler");
    norm->filler[1] = host->get_string(settings, "bias_filler");
    norm->rate[0] = host->get_float(settings, "scale_lr_mult");
    norm->rate[1] = host->get_float(settings, "bias_lr_mult");
    norm->decay[0] = host->get_float(settings, "scale_decay_mult");
    norm->decay[1] = host->get_float(settings, "bias_decay_mult");
    return DLC_OK;
}

static void set_params(const batch_norm *norm, dlc_layer_shapes *shapes) {
    static const char *const name[4] = {"scale", "bias", "mean", "variance"};
    shapes->params = 0;
    for (int i = norm->affine ? 0 : 2; i < 4; i++) {
        dlc_param *param = &shapes->param[shapes->params++];
        param->name = name[i];
        param->shape = (dlc_shape){.rank = 1, .dims = {norm->channels}};
        param->fan_in = param->fan_out = 1;
        param->flags = i < 2 ? 0 : DLC_PARAM_BUFFER;
        param->filler = i < 2    ? norm->filler[i]
                        : i == 2 ? "constant(0)"
                                 : "constant(1)";
        param->lr_mult = i < 2 ? norm->rate[i] : 0;
        param->decay_mult = i < 2 ? norm->decay[i] : 0;
    }
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    batch_norm *norm = (batch_norm *)layer;
    dlc_status status = need_inputs(layer, shapes, 1);
    if (status == DLC_OK)
        status = need_floats(layer, shapes, 2, 5);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    norm->channels = in->dims[1];
    norm->samples = dlc_shape_count(in) / norm->channels;
    if (by_batch(norm) && norm->samples < 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its input %s has one number per channel, which has no "
            "variance; take a larger batch",
            layer->name, shape_print(in).text);
    set_params(norm, shapes);
    same_shape(shapes);
    return DLC_OK;
}

static dlc_status fuse(dlc_layer *layer, const dlc_feature *next,
                       const dlc_settings *settings) {
    batch_norm *norm = (batch_norm *)layer;
    if (!eltwise_is_sum(next, settings))
        return relu_or_clip_fuse(&norm->relu, next, settings);
    if (norm->fused_sum || norm->relu.on)
        return DLC_ERR_UNSUPPORTED;
    norm->fused_sum = 1;
    return DLC_OK;
}

/* The workspace holds the mean and 1 / deviation of the batch. */
static size_t statistics_bytes(const batch_norm *norm) {
    return round64((size_t)norm->channels * sizeof(float));
}

/* The arguments that all kernels need. */
static norm_job job_of(const batch_norm *norm) {
    bounds limit = relu_stored(&norm->relu, norm->layout->dtype);
    return (norm_job){.dtype = (int)norm->layout->dtype,
                      .rows = norm->samples,
                      .channels = norm->channels,
                      .epsilon = norm->epsilon,
                      .momentum = norm->momentum,
                      .low = limit.low,
                      .high = limit.high,
                      .slope = limit.slope,
                      .bounded = norm->relu.on,
                      .by_batch = by_batch(norm)};
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    batch_norm *norm = (batch_norm *)layer;
    const dlc_tensor *in = &memory->in[0];
    if (!(norm->layout = layout_last(layer->net, &in->shape, in->dtype)))
        return DLC_ERR_NOMEM;
    if (by_batch(norm) && in->layout)
        norm->sums = in->layout->sums;
    for (int32_t i = 0; i < memory->inputs; i++) {
        layout_give(&memory->in[i], norm->layout);
        memory->in_place |= 1ull << i;
    }
    if (norm->fused_sum &&
        training(norm)) /* backward keeps the sum's gradient in place */
        memory->in_place = 1ull << 1;
    layout_give(&memory->out[0], norm->layout);
    if (!training(norm))
        return DLC_OK;
    const norm_job job = job_of(norm);
    memory->scratch_bytes = norm_scratch(&job);
    memory->reads_in = 1;
    memory->reads_out = norm->fused_sum && norm->relu.on;
    memory->workspace_bytes = by_batch(norm) ? 2 * statistics_bytes(norm) : 0;
    return DLC_OK;
}

/* ---- Forward and backward ------------------------------------------------------ */

static norm_job pass_of(const batch_norm *norm, const dlc_layer_run *run) {
    norm_job job = job_of(norm);
    int first = norm->affine ? 2 : 0; /* index of the running averages */
    job.x = run->in[0];
    job.running_mean = run->param[first];
    job.running_variance = run->param[first + 1];
    if (norm->affine) {
        job.scale = run->param[0];
        job.bias = run->param[1];
    }
    if (by_batch(norm)) {
        job.mean = run->workspace;
        job.inverse = at_offset(run->workspace, statistics_bytes(norm));
        job.sums = norm->sums ? norm->sums->sum : NULL;
        job.squares = norm->sums ? norm->sums->squares : NULL;
    }
    return job;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    norm_job job = pass_of(norm, run);
    cudaError_t error = cudaSuccess;
    job.other = norm->fused_sum ? run->in[1] : NULL;
    job.y = run->out[0];
    if (by_batch(norm) && !run->recompute)
        error = norm_statistics(&job, run->scratch, layer->net->stream);
    if (error == cudaSuccess)
        error = norm_apply(&job, layer->net->stream);
    return check_cuda(error, layer->name, "do its forward pass");
}

/* With a fused sum, the gradient of the other input is the gradient of the sum, from
 * which the normalization's backward starts as well. If it was not asked for, it
 * overwrites the gradient of the output. */
static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    norm_job job = pass_of(norm, run);
    job.y = run->out[0];
    job.dy = run->out_diff[0];
    job.dx = run->in_diff[0];
    if (norm->fused_sum)
        job.other_diff = run->in_diff[1] ? run->in_diff[1] : run->out_diff[0];
    if (norm->affine) {
        job.diff_scale = run->param_diff[0];
        job.diff_bias = run->param_diff[1];
    }
    return check_cuda(norm_backward(&job, run->scratch, layer->net->stream),
                      layer->name, "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const batch_norm *norm = (const batch_norm *)layer;
    (void)snprintf(text, bytes, "own %s%s%s%s", layout_name(norm->layout),
                   norm->fused_sum ? " +sum" : "", relu_text(&norm->relu),
                   norm->sums ? ", statistics given" : "");
}

const dlc_layer_ops batch_norm_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .fuse = fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
