/* batch_norm: each channel is normalized to mean 0 and variance 1 over the batch, then
 * scaled and shifted by trained numbers. Testing uses running averages instead, which
 * training keeps as parameters without a gradient (DLC_PARAM_BUFFER). */
#include "../shared/norm.h"
#include "channels.h"
#include "isa.h"
#include "norm_group.h"
#include "relu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM_BYTES = 8 << 20 };

typedef struct batch_norm {
    norm_layer base;
    channel_view view;
    const channel_kernels *kernels;
    const dlc_layout *layout;
    int stream; /* use streaming stores */
} batch_norm;

static int training(const batch_norm *norm) {
    return norm->base.head.phase == DLC_PHASE_TRAIN;
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return norm_layer_alloc(args, sizeof(batch_norm), out);
}

/* ---- Memory layout of the channels ---------------------------------------------- */

/* Are the dimensions from the last to `first` dense, in steps of `step`? If so, *step
 * becomes the step of the dimension around them. */
static int dense_down_to(const md_shape *shape, int first, int64_t *step) {
    for (int d = shape->rank - 1; d >= first; d--) {
        if (shape->dims[d] != 1 && shape->strides[d] != *step)
            return 0;
        *step *= shape->dims[d];
    }
    return 1;
}

static int64_t points_of(const md_shape *shape) {
    int64_t points = 1;
    for (int d = 2; d < shape->rank; d++)
        points *= shape->dims[d];
    return points;
}

/* Blocks of channels, or blocks of images. */
static int view_blocked(const md_shape *shape, channel_view *view) {
    int64_t size = shape->inner_size, step = size, channels = shape->dims[1];
    int64_t points = points_of(shape), images = shape->dims[0];
    view->side = 1;
    view->along = shape->inner_dim == 0;
    if (shape->inner_blocks != 1 || shape->inner_dim > 1 ||
        (view->along && images % size))
        return 0;
    if (!view->along) {
        view->side = (size_t)size;
        channels = (channels + size - 1) / size;
        size = 1;
    }
    if (!dense_down_to(shape, 2, &step))
        return 0;
    view->images = (size_t)(images / size);
    view->points = (size_t)(points * size);
    view->point_step = view->side;
    view->block_step = (size_t)step;
    view->image_step = (size_t)(step * channels);
    return (channels == 1 || shape->strides[1] == step) &&
           (images == size || shape->strides[0] == step * channels);
}

/* Returns 0 if the kernels do not know the layout. */
static int view_of(const dlc_layout *layout, const dlc_shape *shape,
                   channel_view *view) {
    size_t images = (size_t)shape->dims[0], channels = (size_t)shape->dims[1];
    size_t points = 1;
    for (int32_t d = 2; d < shape->rank; d++)
        points *= (size_t)shape->dims[d];
    *view = (channel_view){.bf16 = layout->dtype == DLC_BF16, .channels = channels};
    if (layout->last && channels > 1) {
        view->side = view->point_step = channels;
        view->images = 1;
        view->points = images * points;
    } else if (layout->plain) {
        view->along = 1;
        view->side = view->point_step = 1;
        view->images = images;
        view->points = view->block_step = points;
        view->image_step = channels * points;
    } else {
        md_shape look = {0};
        if (!md_look(layout->md, &look) || !view_blocked(&look, view))
            return 0;
    }
    channel_view_cut(view);
    return 1;
}

/* The kernels with the widest vectors that adjacent channels fill. */
static const channel_kernels *kernels_for(const channel_view *view) {
    static const channel_kernels *const all[] = ISA_TABLES(channels_);
    isa best = isa_here();
    while (best > ISA_BASE && !view->along && view->side < all[best]->lanes)
        best--;
    return all[best];
}

/* Is the output larger than the caches keep until it is read, and a multiple of whole
 * vectors? */
static int may_stream(const channel_view *view, const channel_kernels *kernels,
                      size_t bytes) {
    size_t steps = view->image_step | view->block_step |
                   (view->along ? 0 : view->point_step);
    return bytes >= STREAM_BYTES && steps % kernels->lanes == 0;
}

/* Workspace: mean and 1 / deviation of the batch, and the samples of a group. */
static size_t statistics_bytes(const batch_norm *norm) {
    return round64((size_t)norm->base.how.channels * sizeof(float));
}

/* Scratch memory: sums of chunks, then the blocks of a group. */
static size_t sums_bytes(const batch_norm *norm) {
    return round64(channels_space(&norm->view));
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    batch_norm *norm = (batch_norm *)layer;
    const dlc_tensor *in = &memory->in[0];
    const dlc_layout *layout = layout_of(layer->net, in);
    if (layout && !view_of(layout, &in->shape, &norm->view)) {
        layout = layout_last(layer->net, &in->shape, in->dtype);
        if (layout && !view_of(layout, &in->shape, &norm->view))
            return host->fail(DLC_ERR_INTERNAL, "layer '%s': it cannot read %s",
                              layer->name, layout_name(layout));
    }
    dlc_status status = layout ? norm_check_batch(&norm->base, &in->shape)
                               : DLC_ERR_NOMEM;
    if (status != DLC_OK)
        return status;
    norm->layout = layout;
    norm->kernels = kernels_for(&norm->view);
    norm->stream = may_stream(&norm->view, norm->kernels, layout->bytes);
    for (int32_t i = 0; i < memory->inputs; i++) {
        layout_set(&memory->in[i], layout);
        memory->in_place |= 1ull << i;
    }
    if (norm->base.how.fused_sum &&
        training(norm)) /* backward: the gradient of the sum stays in place */
        memory->in_place = 1ull << 1;
    layout_set(&memory->out[0], layout);
    memory->scratch_bytes = channels_space(&norm->view);
    if (!training(norm))
        return DLC_OK;
    if (norm_by_group(&norm->base))
        memory->scratch_bytes = sums_bytes(norm) +
                                norm_group_bytes(layer->group,
                                                 (size_t)norm->base.how.channels);
    memory->reads_in = norm_reads_in(&norm->base);
    memory->reads_out = norm_reads_out(&norm->base);
    if (norm_by_batch(&norm->base))
        memory->workspace_bytes = 2 * statistics_bytes(norm) + sizeof(double);
    return DLC_OK;
}

/* ---- Forward and backward ------------------------------------------------ */

typedef struct pass {
    const batch_norm *norm;
    const dlc_layer_run *run;
    /* by_batch: of the batch, kept for backward; samples: numbers per channel */
    float *mean, *inverse;
    double *samples;
    float *running_mean, *running_variance;
    norm_group group;    /* by_group */
    double *own;         /* by_group: this rank's block of the group */
    const double *total; /* by_group: the combined block */
} pass;

static pass pass_of(const batch_norm *norm, const dlc_layer_run *run) {
    int first = norm->base.how.affine ? 2 : 0;
    pass p = {.norm = norm,
              .run = run,
              .running_mean = run->param[first],
              .running_variance = run->param[first + 1]};
    if (norm_by_batch(&norm->base)) {
        p.mean = run->workspace;
        p.inverse = at_offset(run->workspace, statistics_bytes(norm));
        p.samples = at_offset(run->workspace, 2 * statistics_bytes(norm));
    }
    if (norm_by_group(&norm->base))
        p.group = (norm_group){.ranks = norm->base.head.group,
                               .channels = (size_t)norm->base.how.channels,
                               .blocks = at_offset(run->scratch, sums_bytes(norm))};
    return p;
}

static float inverse_of(const batch_norm *norm, double variance) {
    return (float)(1 / sqrt(variance + (double)norm->base.how.epsilon));
}

/* 1 / deviation of a channel, of the batch or of the running averages. */
static float inverse_at(const pass *p, size_t channel) {
    return p->inverse ? p->inverse[channel]
                      : inverse_of(p->norm, (double)p->running_variance[channel]);
}

/* Sets what forward and backward normalize by. */
static void values_set(const pass *p, size_t channel, size_t i, float mean,
                       float inverse, channel_values *values) {
    void *const *param = p->run->param;
    values->mean[i] = mean;
    values->factor[i] = inverse;
    if (!p->norm->base.how.affine)
        return;
    values->factor[i] = ((const float *)param[0])[channel] * inverse;
    values->add[i] = ((const float *)param[1])[channel];
}

/* Values from known statistics. */
static void values_known(const void *user, size_t group, channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    const float *mean = p->mean ? p->mean : p->running_mean;
    for (size_t i = 0; i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        values_set(p, c, i, mean[c], inverse_at(p, c), values);
    }
}

static void no_statistics(const void *user, size_t group, int keeps, const double *sums,
                          channel_values *values) {
    (void)user, (void)group, (void)keeps, (void)sums, (void)values;
}

/* The statistics of this rank's numbers of channel i of a group of channels. */
static moments own_moments(const pass *p, const double *sums, size_t i) {
    double samples = (double)p->norm->base.how.samples, mean = sums[i] / samples;
    return moments_of(samples, mean,
                      sums[p->norm->view.group + i] / samples - mean * mean);
}

/* Keeps the statistics of a channel, and updates its running averages. The variance
 * kept there is the unbiased estimate, as in Caffe. */
static void keep_statistics(const pass *p, size_t c, moments m) {
    float old = p->norm->base.how.momentum, now = 1 - old;
    p->mean[c] = (float)m.mean;
    p->inverse[c] = inverse_of(p->norm, moments_variance(m));
    p->running_mean[c] = old * p->running_mean[c] + now * (float)m.mean;
    p->running_variance[c] = old * p->running_variance[c] +
                             now * (float)moments_unbiased(m);
}

static void take_statistics(const void *user, size_t group, int keeps,
                            const double *sums, channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    for (size_t i = 0; i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        moments m = own_moments(p, sums, i);
        values_set(p, c, i, (float)m.mean, inverse_of(p->norm, moments_variance(m)),
                   values);
        if (keeps)
            keep_statistics(p, c, m);
    }
}

/* Fills in this rank's block. */
static void give_moments(const void *user, size_t group, int keeps, const double *sums,
                         channel_values *values) {
    const pass *p = user;
    (void)values;
    for (size_t i = 0; keeps && i < channel_count(&p->norm->view, group); i++) {
        size_t c = group * p->norm->view.group + i;
        moments_put(p->own, p->norm->base.how.channels, (long long)c,
                    own_moments(p, sums, i));
    }
}

static channel_task task_of(const batch_norm *norm, const dlc_layer_run *run) {
    return (channel_task){.view = &norm->view,
                          .limit = relu_bounds(&norm->base.how.relu),
                          .x = run->in[0]};
}

/* May `to` be written past the caches? Not where it overwrites what is read: its memory
 * is there already. */
static int streams_to(const batch_norm *norm, const channel_task *task,
                      const void *to) {
    return norm->stream && to != task->x && to != task->other && to != task->out_diff &&
           to != task->other_diff;
}

/* Computes the statistics of a group's samples. A block of zeros has no samples. */
static dlc_status find_group_statistics(pass *p, const channel_task *task) {
    const channel_passes passes = {.task = task,
                                   .first = p->norm->kernels->sum,
                                   .user = p,
                                   .between = give_moments};
    size_t channels = p->group.channels;
    p->own = norm_group_own(&p->group, MOMENT_KINDS);
    if (p->run->empty)
        memset(p->own, 0, MOMENT_KINDS * channels * sizeof *p->own);
    else
        channels_run(&passes, p->run->scratch);
    dlc_status status = norm_group_moments(&p->group, &p->total);
    if (status != DLC_OK || !p->total || !p->samples)
        return status;
    *p->samples = p->total[0];
    for (size_t c = 0; c < channels; c++)
        keep_statistics(p, c, moments_at(p->total, (long long)channels, (long long)c));
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    pass p = pass_of(norm, run);
    channel_task task = task_of(norm, run);
    int known = !norm_by_batch(&norm->base) || run->recompute;
    if (norm_by_group(&norm->base) && !known) {
        dlc_status status = find_group_statistics(&p, &task);
        if (status != DLC_OK || run->empty)
            return status;
        known = 1;
    }
    if (!known && p.samples)
        *p.samples = (double)norm->base.how.samples;
    task.y = run->out[0];
    task.other = norm->base.how.fused_sum ? run->in[1] : NULL;
    task.stream = streams_to(norm, &task, task.y);
    const channel_passes passes = {.task = &task,
                                   .first = known ? NULL : norm->kernels->sum,
                                   .second = norm->kernels->apply,
                                   .user = &p,
                                   .before = known ? values_known : NULL,
                                   .between = known ? no_statistics : take_statistics};
    channels_run(&passes, run->scratch);
    return DLC_OK;
}

/* Sets how the statistics change with their inputs, from the two sums of a channel. */
static void slopes_set(const pass *p, size_t c, size_t i, double first, double second,
                       channel_values *values) {
    double inverse = (double)inverse_at(p, c);
    values->diff_mean[i] = (float)(first / *p->samples);
    values->diff_slope[i] = (float)(second / *p->samples * inverse * inverse);
}

/* Computes the gradients of the parameters, of this rank's samples. */
static void param_gradients(const pass *p, size_t c, double first, double second) {
    void *const *param_diff = p->run->param_diff;
    if (!p->norm->base.how.affine || p->norm->base.head.frozen)
        return;
    ((float *)param_diff[0])[c] = (float)(second * (double)inverse_at(p, c));
    ((float *)param_diff[1])[c] = (float)first;
}

static void take_gradients(const void *user, size_t group, int keeps,
                           const double *sums, channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    for (size_t i = 0; i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        if (norm_by_batch(&p->norm->base))
            slopes_set(p, c, i, sums[i], sums[view->group + i], values);
        if (keeps)
            param_gradients(p, c, sums[i], sums[view->group + i]);
    }
}

/* Fills in this rank's block, and computes the gradients of the parameters. */
static void give_sums(const void *user, size_t group, int keeps, const double *sums,
                      channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    (void)values;
    for (size_t i = 0; keeps && i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        p->own[c] = sums[i];
        p->own[p->group.channels + c] = sums[view->group + i];
        param_gradients(p, c, sums[i], sums[view->group + i]);
    }
}

/* Values from known statistics and the combined sums. */
static void values_total(const void *user, size_t group, channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    values_known(user, group, values);
    for (size_t i = 0; i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        slopes_set(p, c, i, p->total[c], p->total[p->group.channels + c], values);
    }
}

/* The gradient of the other input of a fused sum is the gradient of the sum, from which
 * the backward pass of the normalisation starts, too; if the core does not ask for it,
 * it overwrites the output's gradient. Nothing to do if both are in the same memory.
 * Without the input the gradient before the activation is computed in the same way. */
static void residual_backward(const batch_norm *norm, const dlc_layer_run *run,
                              channel_task *task) {
    int reads_in = norm_reads_in(&norm->base);
    int is_wanted = norm->base.how.fused_sum && run->in_diff[1];
    void *other_diff = is_wanted ? run->in_diff[1] : run->out_diff[0];
    if (!reads_in)
        task->x = run->out_diff[0]; /* the kernels multiply it by 0 */
    if (!norm->base.how.fused_sum && reads_in)
        return;
    if (!norm->base.how.relu.on && other_diff == run->out_diff[0])
        return;
    task->other_diff = other_diff;
    task->y = run->out[0];
}

/* Backward over the samples of several ranks. */
static dlc_status backward_group(pass *p, const channel_task *task) {
    const channel_kernels *kernels = p->norm->kernels;
    const channel_passes sums = {.task = task,
                                 .first = kernels->sum_back,
                                 .user = p,
                                 .before = values_known,
                                 .between = give_sums};
    const channel_passes rest = {.task = task,
                                 .second = kernels->apply_back,
                                 .user = p,
                                 .before = values_total,
                                 .between = no_statistics};
    p->own = norm_group_own(&p->group, SUM_KINDS);
    if (p->run->empty)
        memset(p->own, 0, SUM_KINDS * p->group.channels * sizeof *p->own);
    else
        channels_run(&sums, p->run->scratch);
    dlc_status status = norm_group_sums(&p->group, &p->total);
    if (status == DLC_OK && !p->run->empty)
        channels_run(&rest, p->run->scratch);
    return status;
}

/* The input of the fused activation is recomputed from x, as forward computed it. The
 * gradients of the parameters alone need no other rank. */
static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    pass p = pass_of(norm, run);
    const channel_kernels *kernels = norm->kernels;
    channel_task task = task_of(norm, run);
    task.out_diff = run->out_diff[0];
    task.in_diff = run->in_diff[0];
    residual_backward(norm, run, &task);
    task.stream = streams_to(norm, &task, task.in_diff);
    if (norm_by_group(&norm->base) && task.in_diff)
        return backward_group(&p, &task);
    if (run->empty)
        return DLC_OK;
    int sums = norm_reads_in(&norm->base) || task.other_diff;
    const channel_passes passes = {.task = &task,
                                   .first = sums ? kernels->sum_back : NULL,
                                   .second = task.in_diff ? kernels->apply_back : NULL,
                                   .user = &p,
                                   .before = values_known,
                                   .between = take_gradients};
    channels_run(&passes, run->scratch);
    return DLC_OK;
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const batch_norm *norm = (const batch_norm *)layer;
    (void)snprintf(text, bytes, "own:%s %s%s%s%s", norm->kernels->name,
                   layout_name(norm->layout), norm->base.how.fused_sum ? " +sum" : "",
                   relu_text(&norm->base.how.relu), norm_statistics_text(&norm->base));
}

const dlc_layer_ops batch_norm_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = norm_infer,
    .fuse = norm_fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
