/* batch_norm: brings each channel to mean 0 and variance 1 over the batch, then scales
 * and shifts it by trained numbers. Testing uses running averages instead, which
 * training keeps as parameters without a gradient (DLC_PARAM_BUFFER). The kernels are
 * our own (norm.h); they can fuse a sum and an activation, and support all three
 * element types. */
#include <stdio.h>

#include "../shared/norm.h"
#include "norm.h"
#include "relu.h"

typedef struct batch_norm {
    dlc_layer head;
    norm_settings how;
    const dlc_layout *layout;
    const channel_sums *sums; /* of the input, provided by its writer; NULL: none */
} batch_norm;

static int training(const batch_norm *norm) {
    return norm->head.phase == DLC_PHASE_TRAIN;
}

/* Are mean and variance those of the batch? */
static int by_batch(const batch_norm *norm) {
    return norm_by_batch(&norm->head, &norm->how);
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(batch_norm), out);
    if (status == DLC_OK)
        norm_read(*out, args->settings, &((batch_norm *)*out)->how);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return norm_infer(layer, &((batch_norm *)layer)->how, shapes);
}

static dlc_status fuse(dlc_layer *layer, const dlc_feature *next,
                       const dlc_settings *settings) {
    return norm_fuse(&((batch_norm *)layer)->how, next, settings);
}

/* The workspace holds the mean and 1 / deviation of the batch. */
static size_t statistics_bytes(const batch_norm *norm) {
    return round64((size_t)norm->how.channels * sizeof(float));
}

/* The arguments that all kernels need. */
static norm_job job_of(const batch_norm *norm) {
    bounds limit = relu_stored(&norm->how.relu, norm->layout->dtype);
    return (norm_job){.dtype = (int)norm->layout->dtype,
                      .rows = norm->how.samples,
                      .channels = norm->how.channels,
                      .epsilon = norm->how.epsilon,
                      .momentum = norm->how.momentum,
                      .low = limit.low,
                      .high = limit.high,
                      .slope = limit.slope,
                      .bounded = norm->how.relu.on,
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
    if (norm->how.fused_sum &&
        training(norm)) /* backward keeps the sum's gradient in place */
        memory->in_place = 1ull << 1;
    layout_give(&memory->out[0], norm->layout);
    if (!training(norm))
        return DLC_OK;
    const norm_job job = job_of(norm);
    memory->scratch_bytes = norm_scratch(&job);
    memory->reads_in = 1;
    memory->reads_out = norm->how.fused_sum && norm->how.relu.on;
    memory->workspace_bytes = by_batch(norm) ? 2 * statistics_bytes(norm) : 0;
    return DLC_OK;
}

/* ---- Forward and backward ------------------------------------------------------ */

static norm_job pass_of(const batch_norm *norm, const dlc_layer_run *run) {
    norm_job job = job_of(norm);
    int first = norm->how.affine ? 2 : 0; /* index of the running averages */
    job.x = run->in[0];
    job.running_mean = run->param[first];
    job.running_variance = run->param[first + 1];
    if (norm->how.affine) {
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
    job.other = norm->how.fused_sum ? run->in[1] : NULL;
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
    if (norm->how.fused_sum)
        job.other_diff = run->in_diff[1] ? run->in_diff[1] : run->out_diff[0];
    if (norm->how.affine) {
        job.diff_scale = run->param_diff[0];
        job.diff_bias = run->param_diff[1];
    }
    return check_cuda(norm_backward(&job, run->scratch, layer->net->stream),
                      layer->name, "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const batch_norm *norm = (const batch_norm *)layer;
    (void)snprintf(text, bytes, "own %s%s%s%s", layout_name(norm->layout),
                   norm->how.fused_sum ? " +sum" : "", relu_text(&norm->how.relu),
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
