/* batch_norm: brings each channel to mean 0 and variance 1 over the batch, then scales
 * and shifts it by trained numbers. Testing uses running averages instead, which
 * training keeps as parameters without a gradient (DLC_PARAM_BUFFER). The kernels are
 * our own (norm.h); they can fuse a sum and an activation, and support all three
 * element types. */
#include <stdio.h>

#include "../shared/moments.h"
#include "../shared/norm.h"
#include "norm.h"
#include "relu.h"

typedef struct batch_norm {
    norm_layer base;
    const dlc_layout *layout;
    const channel_sums *sums; /* of the input, provided by its writer; NULL: none */
} batch_norm;

static int training(const batch_norm *norm) {
    return norm->base.head.phase == DLC_PHASE_TRAIN;
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return norm_layer_alloc(args, sizeof(batch_norm), out);
}

/* The workspace holds the mean and 1 / deviation of the batch, the samples of a group,
 * and the activation's mask; scratch memory holds what the kernels need, and the blocks
 * of a group. */
static size_t statistics_bytes(const batch_norm *norm) {
    return round64((size_t)norm->base.how.channels * sizeof(float));
}

static size_t mask_offset(const batch_norm *norm) {
    return norm_by_batch(&norm->base)
               ? 2 * statistics_bytes(norm) + round64(sizeof(double))
               : 0;
}

/* The arguments that all kernels need. */
static norm_job job_of(const batch_norm *norm) {
    bounds limit = relu_stored(&norm->base.how.relu, norm->layout->dtype);
    return (norm_job){.dtype = (int)norm->layout->dtype,
                      .rows = norm->base.how.samples,
                      .channels = norm->base.how.channels,
                      .epsilon = norm->base.how.epsilon,
                      .momentum = norm->base.how.momentum,
                      .low = limit.low,
                      .high = limit.high,
                      .slope = limit.slope,
                      .bounded = norm->base.how.relu.on,
                      .by_batch = norm_by_batch(&norm->base)};
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    batch_norm *norm = (batch_norm *)layer;
    const dlc_tensor *in = &memory->in[0];
    dlc_status status = norm_check_batch(&norm->base, &in->shape);
    if (status != DLC_OK)
        return status;
    if (!(norm->layout = layout_last(layer->net, &in->shape, in->dtype)))
        return DLC_ERR_NOMEM;
    if (norm_by_batch(&norm->base) && in->layout)
        norm->sums = in->layout->sums;
    for (int32_t i = 0; i < memory->inputs; i++) {
        layout_give(&memory->in[i], norm->layout);
        memory->in_place |= 1ull << i;
    }
    if (norm->base.how.fused_sum &&
        training(norm)) /* backward keeps the sum's gradient in place */
        memory->in_place = 1ull << 1;
    layout_give(&memory->out[0], norm->layout);
    if (!training(norm))
        return DLC_OK;
    const norm_job job = job_of(norm);
    memory->scratch_bytes = norm_scratch(&job);
    if (norm_by_group(&norm->base))
        memory->scratch_bytes = round64(norm_scratch(&job)) +
                                norm_block_bytes(&job, layer->group->ranks);
    memory->reads_in = norm_reads_in(&norm->base);
    memory->workspace_bytes = mask_offset(norm);
    if (norm_reads_out(&norm->base)) /* a bit a value does as well */
        memory->workspace_bytes += norm_mask_bytes(&job);
    return DLC_OK;
}

/* ---- Forward and backward ------------------------------------------------------ */

static norm_job pass_of(const batch_norm *norm, const dlc_layer_run *run) {
    norm_job job = job_of(norm);
    int first = norm->base.how.affine ? 2 : 0; /* index of the running averages */
    job.x = run->in[0];
    job.running_mean = run->param[first];
    job.running_variance = run->param[first + 1];
    if (norm->base.how.affine) {
        job.scale = run->param[0];
        job.bias = run->param[1];
    }
    if (norm_by_batch(&norm->base)) {
        job.mean = run->workspace;
        job.inverse = at_offset(run->workspace, statistics_bytes(norm));
        job.sums = norm->sums ? norm->sums->sum : NULL;
        job.squares = norm->sums ? norm->sums->squares : NULL;
    }
    if (training(norm) && norm_reads_out(&norm->base))
        job.mask = at_offset(run->workspace, mask_offset(norm));
    if (norm_by_group(&norm->base)) {
        job.samples = at_offset(run->workspace, 2 * statistics_bytes(norm));
        job.blocks = at_offset(run->scratch, round64(norm_scratch(&job)));
        job.merges = norm->base.head.group->merges;
        job.rank = norm->base.head.group->rank;
        job.ranks = norm->base.head.group->ranks;
    }
    return job;
}

/* Gathers the blocks of all ranks, of `kinds` numbers per channel; `error` is that of
 * filling in this rank's. */
static dlc_status gather(const batch_norm *norm, const norm_job *job, int kinds,
                         cudaError_t error) {
    const dlc_layer_group *group = norm->base.head.group;
    dlc_status status = check_cuda(error, norm->base.head.name,
                                   "compute its statistics");
    if (status != DLC_OK)
        return status;
    return group->all_gather(group->context, job->blocks,
                             (size_t)kinds * (size_t)job->channels * sizeof(double));
}

/* The statistics over the samples of all ranks. */
static dlc_status find_group_statistics(const batch_norm *norm, const norm_job *job,
                                        const dlc_layer_run *run) {
    cudaStream_t stream = norm->base.head.net->stream;
    cudaError_t error = run->empty ? norm_clear_block(job, MOMENT_KINDS, stream)
                                   : norm_statistics(job, run->scratch, stream);
    dlc_status status = gather(norm, job, MOMENT_KINDS, error);
    if (status != DLC_OK)
        return status;
    return check_cuda(norm_merge_statistics(job, stream), norm->base.head.name,
                      "compute its statistics");
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    norm_job job = pass_of(norm, run);
    cudaError_t error = cudaSuccess;
    if (norm_by_group(&norm->base) && !run->recompute) {
        dlc_status status = find_group_statistics(norm, &job, run);
        if (status != DLC_OK || run->empty)
            return status;
    }
    job.other = norm->base.how.fused_sum ? run->in[1] : NULL;
    job.y = run->out[0];
    if (norm_by_batch(&norm->base) && !norm_by_group(&norm->base) && !run->recompute)
        error = norm_statistics(&job, run->scratch, layer->net->stream);
    if (error == cudaSuccess)
        error = norm_apply(&job, layer->net->stream);
    return check_cuda(error, layer->name, "do its forward pass");
}

static dlc_status backward_group(const batch_norm *norm, const norm_job *job,
                                 const dlc_layer_run *run) {
    cudaStream_t stream = norm->base.head.net->stream;
    cudaError_t error = run->empty ? norm_clear_block(job, SUM_KINDS, stream)
                                   : norm_backward(job, run->scratch, stream);
    dlc_status status = gather(norm, job, SUM_KINDS, error);
    if (status != DLC_OK || run->empty)
        return status;
    return check_cuda(norm_merge_backward(job, run->scratch, stream),
                      norm->base.head.name, "do its backward pass");
}

/* With a fused sum, the gradient of the other input is the gradient of the sum, from
 * which the normalization's backward starts as well. If it was not asked for, it
 * overwrites the gradient of the output. Without the input (which the kernels multiply
 * by 0 then) the gradient before the activation is computed in the same way. */
static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    norm_job job = pass_of(norm, run);
    job.dy = run->out_diff[0];
    job.dx = run->in_diff[0];
    if (!norm_reads_in(&norm->base))
        job.x = job.other_diff = run->out_diff[0];
    if (norm->base.how.fused_sum && run->in_diff[1])
        job.other_diff = run->in_diff[1];
    else if (norm->base.how.fused_sum)
        job.other_diff = run->out_diff[0];
    if (norm->base.how.affine && !layer->frozen) {
        job.diff_scale = run->param_diff[0];
        job.diff_bias = run->param_diff[1];
    }
    if (job.blocks && job.dx)
        return backward_group(norm, &job, run);
    if (run->empty)
        return DLC_OK;
    job.blocks = NULL; /* the gradients of the parameters alone need no other rank */
    return check_cuda(norm_backward(&job, run->scratch, layer->net->stream),
                      layer->name, "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const batch_norm *norm = (const batch_norm *)layer;
    (void)snprintf(
        text, bytes, "own %s%s%s%s%s", layout_name(norm->layout),
        norm->base.how.fused_sum ? " +sum" : "", relu_text(&norm->base.how.relu),
        norm->sums ? ", statistics given" : "", norm_statistics_text(&norm->base));
}

const dlc_layer_ops batch_norm_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = norm_infer,
    .fuse = norm_fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
