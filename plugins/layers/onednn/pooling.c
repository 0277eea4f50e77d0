/* pooling: the maximum or the average of each window, channel by channel.
 *
 * Caffe's rules: the number of windows is rounded up, and the average divides by the
 * window's area inside the padded image, which for windows that overhang the padding is
 * less than its size. Our own kernels (pool.h) do this wherever the channels of a pixel
 * are adjacent; oneDNN has plain images, and windows of too many taps for them.
 */
#include "../shared/pooling.h"
#include "isa.h"
#include "op_layer.h"
#include "pool.h"
#include "sizes.h"

#include <stdio.h>

enum {
    WORTH_THREADS = 32 << 10, /* elements */
    STREAM_BYTES = 64 << 20   /* more than the caches keep until it is read */
};

typedef struct pooling {
    op_layer ops;
    pooling_settings how;
    int needs_own;               /* averages that oneDNN cannot compute */
    const pool_kernels *kernels; /* NULL: oneDNN's */
    pool_plan plan;
    pool_span *spans;
    int stream_out, stream_in; /* forward, backward */
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

static void destroy(dlc_layer *layer) {
    if (layer)
        host->free(((pooling *)layer)->spans);
    op_layer_destroy(layer);
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
    pool->needs_own = pool->how.average && !pool->how.inside && overhang;
    return DLC_OK;
}

/* ---- Our own kernels ------------------------------------------------------------ */

static const pool_kernels *kernels_here(void) {
    static const pool_kernels *const all[] = ISA_TABLES(pool_);
    return all[isa_here()];
}

/* One axis of the settings and shapes. */
typedef struct axis {
    size_t in, out, kernel, stride, pad;
    int inside;
} axis;

static pool_span window_span(const axis *a, size_t at) {
    size_t begin = at * a->stride; /* in the padded image */
    size_t end = least(begin + a->kernel, a->in + 2 * a->pad);
    size_t skipped = begin < a->pad ? a->pad - begin : 0;
    size_t inside = least(end, a->in + a->pad) - begin - skipped;
    return (pool_span){.begin = begin + skipped - a->pad,
                       .count = inside,
                       .tap = skipped,
                       .share = 1.0f / (float)(a->inside ? inside : end - begin)};
}

static pool_span cover_span(const axis *a, size_t at) {
    size_t place = at + a->pad; /* in the padded image */
    size_t first = place < a->kernel ? 0 : (place - a->kernel) / a->stride + 1;
    size_t end = least(place / a->stride + 1, a->out);
    if (first >= end) /* no window holds it */
        return (pool_span){0};
    return (pool_span){
        .begin = first, .count = end - first, .tap = place - first * a->stride};
}

static dlc_status make_spans(pooling *pool) {
    pool_plan *plan = &pool->plan;
    size_t count = plan->in[0] + plan->in[1] + plan->out[0] + plan->out[1];
    host->free(pool->spans);
    pool_span *next = pool->spans = host->alloc(count * sizeof *next);
    if (!next)
        return DLC_ERR_NOMEM;
    for (int i = 0; i < 2; i++) {
        const axis a = {plan->in[i],
                        plan->out[i],
                        plan->kernel[i],
                        plan->stride[i],
                        (size_t)pool->how.window.pad_begin[i],
                        pool->how.inside};
        plan->window[i] = next;
        for (size_t at = 0; at < a.out; at++)
            *next++ = window_span(&a, at);
        plan->cover[i] = next;
        for (size_t at = 0; at < a.in; at++)
            *next++ = cover_span(&a, at);
    }
    return DLC_OK;
}

static dlc_status plan_own(pooling *pool, const layout_pixel_view *view,
                           const dlc_layer_memory *memory) {
    const sliding_window *window = &pool->how.window;
    pool->plan = (pool_plan){.bf16 = memory->in[0].dtype == DLC_BF16,
                             .average = pool->how.average,
                             .images = view->images * view->blocks,
                             .lanes = view->lanes};
    for (int i = 0; i < 2; i++) {
        pool->plan.in[i] = (size_t)memory->in[0].shape.dims[2 + i];
        pool->plan.out[i] = (size_t)memory->out[0].shape.dims[2 + i];
        pool->plan.kernel[i] = (size_t)window->kernel[i];
        pool->plan.stride[i] = (size_t)window->stride[i];
    }
    return make_spans(pool);
}

/* Can our kernels compute it in this layout, and are vectors of pixels any use? */
static int suits_own(const pooling *pool, const dlc_layout *layout,
                     const dlc_shape *shape, layout_pixel_view *view) {
    const sliding_window *window = &pool->how.window;
    return (!layout->plain || pool->needs_own) && layout_pixels(layout, shape, view) &&
           (pool->how.average ||
            window->kernel[0] * window->kernel[1] <= POOL_MOST_TAPS);
}

static dlc_status prepare_own(pooling *pool, const dlc_layout *from,
                              const layout_pixel_view *view, dlc_layer_memory *memory) {
    context *net = pool->ops.head.net;
    const dlc_shape *out = &memory->out[0].shape;
    const dlc_layout *to = from->block
                               ? layout_blocked(net, out, from->dtype, from->block)
                           : from->batch_block
                               ? layout_batch_blocked(net, out, from->batch_block)
                               : layout_last(net, out, from->dtype);
    if (!to)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], from);
    layout_set(&memory->out[0], to);
    pool->kernels = kernels_here();
    int aligned = view->lanes % (2 * pool->kernels->lanes) == 0 ||
                  (from->dtype == DLC_F32 && view->lanes % pool->kernels->lanes == 0);
    pool->stream_out = aligned && to->bytes >= STREAM_BYTES;
    pool->stream_in = aligned && from->bytes >= STREAM_BYTES;
    if (pool->ops.head.phase == DLC_PHASE_TRAIN && !pool->how.average)
        memory->workspace_bytes = (size_t)layout_count(to);
    return plan_own(pool, view, memory);
}

static dlc_status forward_own(const pooling *pool, const dlc_layer_run *run) {
    const pool_plan *plan = &pool->plan;
    int keeps = pool->ops.head.phase == DLC_PHASE_TRAIN && !plan->average;
    const pool_tensors tensors = {.from = run->in[0],
                                  .to = run->out[0],
                                  .place = keeps ? run->workspace : NULL,
                                  .stream = pool->stream_out};
    size_t rows = plan->images * plan->out[0], row = plan->in[1] * plan->lanes;
#pragma omp parallel for schedule(static) if (rows * row > WORTH_THREADS)
    for (size_t i = 0; i < rows; i++)
        pool->kernels->forward(plan, &tensors, i);
    return DLC_OK;
}

static dlc_status backward_own(const pooling *pool, const dlc_layer_run *run) {
    const pool_plan *plan = &pool->plan;
    const pool_tensors tensors = {.from = run->out_diff[0],
                                  .to = run->in_diff[0],
                                  .place = run->workspace,
                                  .stream = pool->stream_in};
    size_t rows = plan->images * plan->in[0], row = plan->in[1] * plan->lanes;
#pragma omp parallel for schedule(static) if (rows * row > WORTH_THREADS)
    for (size_t i = 0; i < rows; i++)
        pool->kernels->backward(plan, &tensors, i);
    return DLC_OK;
}

/* ---- oneDNN's ------------------------------------------------------------------- */

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

/* ---- The layer ------------------------------------------------------------------ */

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    pooling *pool = (pooling *)layer;
    const dlc_tensor *in = &memory->in[0];
    layout_pixel_view view;
    const dlc_layout *from = layout_of(layer->net, in);
    if (from && pool->needs_own && !suits_own(pool, from, &in->shape, &view))
        from = layout_last(layer->net, &in->shape, in->dtype);
    if (!from)
        return DLC_ERR_NOMEM;
    if (suits_own(pool, from, &in->shape, &view))
        return prepare_own(pool, from, &view, memory);
    dlc_status status = op_layer_prepare_by_channel(layer, &kind, memory, &from);
    return status == DLC_OK && layer->phase == DLC_PHASE_TRAIN
               ? op_layer_prepare_backward(layer, &kind, memory)
               : status;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const pooling *pool = (const pooling *)layer;
    return pool->kernels ? forward_own(pool, run) : op_layer_forward(layer, run);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    pooling *pool = (pooling *)layer;
    if (!run->in_diff[0])
        return DLC_OK;
    if (pool->kernels)
        return backward_own(pool, run);
    return OP_RUN(&pool->ops.backward, {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_WORKSPACE, run->workspace},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const pooling *pool = (const pooling *)layer;
    if (pool->kernels)
        (void)snprintf(text, bytes, "own:%s", pool->kernels->name);
    else
        op_layer_describe(layer, text, bytes);
}

const dlc_layer_ops pooling_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = destroy,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
