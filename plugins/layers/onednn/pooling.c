/* pooling: the maximum or the average of each window, channel by channel.
 *
 * Caffe's rules: the number of windows is rounded up, and the average divides by the
 * window's area inside the padded image, which for windows that overhang the padding is
 * less than its size. oneDNN divides by the whole window, so pool_average.c computes
 * these.
 */
#include "../shared/pooling.h"
#include "op_layer.h"
#include "pool_average.h"

typedef struct pooling {
    op_layer ops;
    pooling_settings how;
    int own; /* averages that oneDNN cannot compute */
    pool_average plan;
} pooling;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(pooling), &layer);
    if (status != DLC_OK)
        return status;
    pooling *pool = (pooling *)layer;
    status = pooling_read(layer->name, args->settings, &pool->how);
    if (status == DLC_OK)
        *out = layer;
    else
        layer_free(layer);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    pooling *pool = (pooling *)layer;
    dlc_status status = pooling_infer(layer, &pool->how, shapes);
    if (status != DLC_OK)
        return status;
    const sliding_window *window = &pool->how.window;
    int overhang = window->pad_end[0] > window->pad_begin[0] ||
                   window->pad_end[1] > window->pad_begin[1];
    /* Without padding, what is inside the padded image is inside the image. */
    if (!window->pad_begin[0] && !window->pad_begin[1])
        pool->how.inside = 1;
    pool->own = pool->how.average && !pool->how.inside && overhang;
    if (pool->own)
        shapes->out[0].dtype = DLC_F32;
    return DLC_OK;
}

static dlc_status prepare_own(pooling *pool, dlc_layer_memory *memory) {
    context *net = pool->ops.head.net;
    int last = 1;
    const dlc_shape *out = &memory->out[0].shape;
    dlc_shape planes, pooled;
    if (memory->in[0].dtype != DLC_F32) { /* the only type that these loops read */
        memory->in[0].layout = NULL;
        memory->in[0].dtype = DLC_F32;
    }
    const dlc_layout *from = layout_of(net, &memory->in[0]);
    if (from && !from->batch_block)
        from = layout_simple(net, &memory->in[0], &last);
    const dlc_layout *to = from ? layout_like(net, from, out) : NULL;
    if (!to || !layout_by_channel(net, from, &memory->in[0].shape, &planes) ||
        !layout_by_channel(net, to, out, &pooled))
        return DLC_ERR_NOMEM;
    pool->plan = pool_average_plan(&pool->how.window, &planes, &pooled, last);
    layout_set(&memory->in[0], from);
    layout_set(&memory->out[0], to);
    return DLC_OK;
}

static dnnl_alg_kind_t algorithm(const pooling *pool) {
    if (!pool->how.average)
        return dnnl_pooling_max;
    return pool->how.inside ? dnnl_pooling_avg_exclude_padding
                            : dnnl_pooling_avg_include_padding;
}

static dnnl_status_t forward_pd(const dlc_layer *layer, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t dst,
                                dnnl_primitive_desc_t *pd) {
    const pooling *pool = (const pooling *)layer;
    return pd_pool_forward(env, prop, algorithm(pool), &pool->how.window, src, dst, pd);
}

static dnnl_status_t backward_pd(const dlc_layer *layer, const pd_env *env,
                                 md_t diff_src, md_t diff_dst,
                                 dnnl_primitive_desc_t *pd) {
    const pooling *pool = (const pooling *)layer;
    return pd_pool_backward(env, algorithm(pool), &pool->how.window, diff_src, diff_dst,
                            pd);
}

static const op_layer_kind kind = {forward_pd, backward_pd};

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    pooling *pool = (pooling *)layer;
    const dlc_layout *from = NULL;
    if (pool->own)
        return prepare_own(pool, memory);
    dlc_status status = op_layer_prepare_by_channel(layer, &kind, memory, &from);
    return status == DLC_OK && layer->phase == DLC_PHASE_TRAIN
               ? op_layer_prepare_backward(layer, &kind, memory)
               : status;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    pooling *pool = (pooling *)layer;
    if (pool->own) {
        pool_average_forward(&pool->plan, run->in[0], run->out[0]);
        return DLC_OK;
    }
    return op_layer_forward(layer, run);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    pooling *pool = (pooling *)layer;
    if (!run->in_diff[0])
        return DLC_OK;
    if (pool->own) {
        pool_average_backward(&pool->plan, run->out_diff[0], run->in_diff[0]);
        return DLC_OK;
    }
    return OP_RUN(&pool->ops.backward, {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_WORKSPACE, run->workspace},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    if (((const pooling *)layer)->own)
        describe_own(layer, text, bytes);
    else
        op_layer_describe(layer, text, bytes);
}

const dlc_layer_ops pooling_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = op_layer_destroy,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
