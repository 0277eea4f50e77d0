/* batch_norm: each channel is normalized to mean 0 and variance 1 over the batch, then
 * scaled and shifted by trained numbers. Testing uses running averages instead, which
 * training keeps as parameters without a gradient (DLC_PARAM_BUFFER). */
#include "../shared/norm.h"
#include "channels.h"
#include "isa.h"
#include "relu.h"

#include <math.h>
#include <stdio.h>

enum { STREAM_BYTES = 8 << 20 };

typedef struct batch_norm {
    dlc_layer head;
    norm_settings how;
    channel_view view;
    const channel_kernels *kernels;
    const dlc_layout *layout;
    int stream; /* use streaming stores */
} batch_norm;

static int training(const batch_norm *norm) {
    return norm->head.phase == DLC_PHASE_TRAIN;
}

/* Are mean and variance computed from the batch? */
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
    static const channel_kernels *const all[] = {
        [ISA_BASE] = &channels_base,
#ifdef __x86_64__
        [ISA_AVX2] = &channels_avx2,
        [ISA_AVX512] = &channels_avx512,
#else
        [ISA_AVX2] = &channels_base,
        [ISA_AVX512] = &channels_base,
#endif
    };
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

/* Workspace: mean and 1 / deviation of the batch. */
static size_t statistics_bytes(const batch_norm *norm) {
    return round64((size_t)norm->how.channels * sizeof(float));
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
    if (!layout)
        return DLC_ERR_NOMEM;
    norm->layout = layout;
    norm->kernels = kernels_for(&norm->view);
    norm->stream = may_stream(&norm->view, norm->kernels, layout->bytes);
    for (int32_t i = 0; i < memory->inputs; i++) {
        layout_set(&memory->in[i], layout);
        memory->in_place |= 1ull << i;
    }
    if (norm->how.fused_sum &&
        training(norm)) /* backward: the gradient of the sum stays in place */
        memory->in_place = 1ull << 1;
    layout_set(&memory->out[0], layout);
    memory->scratch_bytes = channels_space(&norm->view);
    if (!training(norm))
        return DLC_OK;
    memory->reads_in = 1;
    memory->reads_out = norm->how.fused_sum && norm->how.relu.on;
    memory->workspace_bytes = by_batch(norm) ? 2 * statistics_bytes(norm) : 0;
    return DLC_OK;
}

/* ---- Forward and backward ------------------------------------------------ */

typedef struct pass {
    const batch_norm *norm;
    const dlc_layer_run *run;
    float *mean, *inverse; /* by_batch: those of the batch, kept for backward */
    float *running_mean, *running_variance;
} pass;

static pass pass_of(const batch_norm *norm, const dlc_layer_run *run) {
    int first = norm->how.affine ? 2 : 0;
    pass p = {.norm = norm,
              .run = run,
              .running_mean = run->param[first],
              .running_variance = run->param[first + 1]};
    if (by_batch(norm)) {
        p.mean = run->workspace;
        p.inverse = at_offset(run->workspace, statistics_bytes(norm));
    }
    return p;
}

static float inverse_of(const batch_norm *norm, double variance) {
    return (float)(1 / sqrt(variance + (double)norm->how.epsilon));
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
    if (!p->norm->how.affine)
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

/* Updates running averages. The variance kept is the unbiased estimate, as in Caffe. */
static void update_averages(const pass *p, size_t channel, double mean,
                            double variance) {
    float old = p->norm->how.momentum, now = 1 - old;
    double samples = (double)p->norm->how.samples;
    float unbiased = (float)(variance * samples / (samples - 1));
    p->running_mean[channel] = old * p->running_mean[channel] + now * (float)mean;
    p->running_variance[channel] = old * p->running_variance[channel] + now * unbiased;
}

static void take_statistics(const void *user, size_t group, int keeps,
                            const double *sums, channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    double samples = (double)p->norm->how.samples;
    for (size_t i = 0; i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        double mean = sums[i] / samples;
        double variance = sums[view->group + i] / samples - mean * mean;
        variance = variance < 0 ? 0 : variance;
        float inverse = inverse_of(p->norm, variance);
        values_set(p, c, i, (float)mean, inverse, values);
        if (!keeps)
            continue;
        p->mean[c] = (float)mean;
        p->inverse[c] = inverse;
        update_averages(p, c, mean, variance);
    }
}

static channel_task task_of(const batch_norm *norm, const dlc_layer_run *run) {
    return (channel_task){.view = &norm->view,
                          .limit = relu_bounds(&norm->how.relu),
                          .stream = norm->stream,
                          .x = run->in[0]};
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    const pass p = pass_of(norm, run);
    channel_task task = task_of(norm, run);
    int known = !by_batch(norm) || run->recompute;
    task.y = run->out[0];
    task.other = norm->how.fused_sum ? run->in[1] : NULL;
    const channel_passes passes = {.task = &task,
                                   .first = known ? NULL : norm->kernels->sum,
                                   .second = norm->kernels->apply,
                                   .user = &p,
                                   .before = known ? values_known : NULL,
                                   .between = known ? no_statistics : take_statistics};
    channels_run(&passes, run->scratch);
    return DLC_OK;
}

/* Computes the gradients of the parameters, and how the statistics change with their
 * inputs. */
static void take_gradients(const void *user, size_t group, int keeps,
                           const double *sums, channel_values *values) {
    const pass *p = user;
    const channel_view *view = &p->norm->view;
    void *const *param_diff = p->run->param_diff;
    double samples = (double)p->norm->how.samples;
    for (size_t i = 0; i < channel_count(view, group); i++) {
        size_t c = group * view->group + i;
        double inverse = (double)inverse_at(p, c);
        if (by_batch(p->norm)) {
            values->diff_mean[i] = (float)(sums[i] / samples);
            values->diff_slope[i] = (float)(sums[view->group + i] / samples * inverse *
                                            inverse);
        }
        if (!keeps || !p->norm->how.affine)
            continue;
        ((float *)param_diff[0])[c] = (float)(sums[view->group + i] * inverse);
        ((float *)param_diff[1])[c] = (float)sums[i];
    }
}

/* The gradient of the other input of a fused sum is the gradient of the sum, from which
 * the backward pass of the normalisation starts, too; if the core does not ask for it,
 * it overwrites the output's gradient. Nothing to do if both are in the same memory. */
static void residual_backward(const batch_norm *norm, const dlc_layer_run *run,
                              channel_task *task) {
    if (!norm->how.fused_sum)
        return;
    void *other_diff = run->in_diff[1] ? run->in_diff[1] : run->out_diff[0];
    if (!norm->how.relu.on && other_diff == run->out_diff[0])
        return;
    task->other_diff = other_diff;
    task->y = run->out[0];
}

/* The input of the fused activation is recomputed from x, as forward computed it. */
static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const batch_norm *norm = (const batch_norm *)layer;
    const pass p = pass_of(norm, run);
    const channel_kernels *kernels = norm->kernels;
    channel_task task = task_of(norm, run);
    task.out_diff = run->out_diff[0];
    task.in_diff = run->in_diff[0];
    residual_backward(norm, run, &task);
    int sums = by_batch(norm) || norm->how.affine || task.other_diff;
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
    (void)snprintf(text, bytes, "own:%s %s%s%s", norm->kernels->name,
                   layout_name(norm->layout), norm->how.fused_sum ? " +sum" : "",
                   relu_text(&norm->how.relu));
}

const dlc_layer_ops batch_norm_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .fuse = fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
