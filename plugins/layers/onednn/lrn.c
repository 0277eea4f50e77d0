/* lrn: local response normalisation, x / (k + alpha / n * sum x^2)^beta, the sum over
 * neighbouring channels or over the neighbourhood in the image (n: how many there
 * are), as Caffe defines it. Our own kernels compute the usual exponent 3/4, oneDNN the
 * rest. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "isa.h"
#include "lrn_kernels.h"
#include "op_layer.h"

enum { STREAM_BYTES = 8 << 20 /* more than the caches keep until it is read */ };

typedef struct lrn {
    op_layer ops;
    pd_lrn how;
    const lrn_kernels *kernels;      /* across channels; NULL: not */
    const lrn_plane_kernels *planes; /* within channels; both NULL: oneDNN's */
    size_t images, threads, space_bytes /* of a thread */;
    lrn_plan plan;
} lrn;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    int64_t size = host->get_int(settings, "local_size");
    if (size % 2 == 0)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': local_size = %lld must be odd, so that its middle "
            "is the element itself",
            args->name, (long long)size);
    dlc_status status = layer_alloc(args, sizeof(lrn), out);
    if (status != DLC_OK)
        return status;
    /* A single element is its own neighbourhood either way; and oneDNN 2.6 crashes when
     * it compiles that across channels. */
    const char *region = size == 1 ? "within_channel"
                                   : host->get_string(settings, "norm_region");
    ((lrn *)*out)->how = (pd_lrn){
        .kind = strcmp(region, "within_channel") == 0 ? dnnl_lrn_within_channel
                                                      : dnnl_lrn_across_channels,
        .size = size,
        .alpha = (float)host->get_float(settings, "alpha"),
        .beta = (float)host->get_float(settings, "beta"),
        .k = (float)host->get_float(settings, "k"),
    };
    return DLC_OK;
}

static dnnl_status_t forward_pd(const dlc_layer *layer, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t dst,
                                dnnl_primitive_desc_t *pd) {
    (void)dst; /* the same */
    return pd_lrn_forward(env, prop, &((const lrn *)layer)->how, src, pd);
}

static dnnl_status_t backward_pd(const dlc_layer *layer, const pd_env *env,
                                 md_t diff_src, md_t diff_dst,
                                 dnnl_primitive_desc_t *pd) {
    (void)diff_dst;
    return pd_lrn_backward(env, &((const lrn *)layer)->how, diff_src, pd);
}

static const op_layer_kind kind = {forward_pd, backward_pd};

/* ---- Our own kernels ------------------------------------------------------------ */

static const lrn_kernels *kernels_here(void) {
    static const lrn_kernels *const all[] = ISA_TABLES(lrn_);
    return all[isa_here()];
}

static const lrn_plane_kernels *plane_kernels_here(void) {
    static const lrn_plane_kernels *const all[] = ISA_TABLES(lrn_plane_);
    return all[isa_here()];
}

/* Their powers are of positive numbers that are not tiny. */
static int suits_own(const pd_lrn *how) {
    return how->size <= LRN_MOST_SIZE && how->beta == 0.75f && how->alpha >= 0 &&
           how->k >= 1e-30f;
}

static void choose_across(lrn *layer, const dlc_layout *layout) {
    const lrn_plan *plan = &layer->plan;
    if (!layout->batch_block && plan->blocks * plan->lanes <= LRN_MOST_CHANNELS)
        layer->kernels = kernels_here();
}

static void choose_within(lrn *layer, dlc_layer_memory *memory) {
    lrn_plan *plan = &layer->plan;
    const lrn_plane_kernels *kernels = plane_kernels_here();
    plan->factor /= (float)layer->how.size;
    plan->rows = (size_t)memory->in[0].shape.dims[2];
    plan->columns = (size_t)memory->in[0].shape.dims[3];
    if (kernels->plane_bytes(plan) > LRN_MOST_PLANE)
        return;
    layer->planes = kernels;
    layer->threads = (size_t)omp_get_max_threads();
    layer->space_bytes = round64(kernels->space_bytes(plan));
    memory->scratch_bytes = layer->threads * layer->space_bytes;
}

/* DLC_ERR_UNSUPPORTED: it is left to oneDNN. */
static dlc_status prepare_own(lrn *layer, dlc_layer_memory *memory) {
    context *net = layer->ops.head.net;
    const dlc_layout *layout = layout_of(net, &memory->in[0]);
    layout_pixel_view view;
    if (!layout)
        return DLC_ERR_NOMEM;
    if (layout->plain || !suits_own(&layer->how) ||
        !layout_pixels(layout, &memory->in[0].shape, &view))
        return DLC_ERR_UNSUPPORTED;
    layer->kernels = NULL;
    layer->planes = NULL;
    layer->images = view.images;
    layer->plan = (lrn_plan){
        .bf16 = layout->dtype == DLC_BF16,
        .stream = layout->bytes >= STREAM_BYTES &&
                  view.lanes % kernels_here()->lanes == 0,
        .blocks = view.blocks,
        .lanes = view.lanes,
        .points = view.points,
        .reach = (size_t)layer->how.size / 2,
        .k = layer->how.k,
        .factor = layer->how.alpha / (float)layer->how.size,
    };
    if (layer->how.kind == dnnl_lrn_across_channels)
        choose_across(layer, layout);
    else
        choose_within(layer, memory);
    if (!layer->kernels && !layer->planes)
        return DLC_ERR_UNSUPPORTED;
    layout_set(&memory->in[0], layout);
    layout_set(&memory->out[0], layout);
    return DLC_OK;
}

static void run_planes(const lrn *layer, const void *in, const void *out_diff, void *to,
                       void *scratch) {
    const lrn_plan *plan = &layer->plan;
    size_t planes = layer->images * plan->blocks;
#pragma omp parallel num_threads((int)layer->threads)
    {
        size_t all = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
        size_t first = planes * me / all, end = planes * (me + 1) / all;
        float *space = at_offset(scratch, me * layer->space_bytes);
        if (out_diff)
            layer->planes->backward(plan, first, end, in, out_diff, to, space);
        else
            layer->planes->forward(plan, first, end, in, to, space);
    }
}

static void run_across(const lrn *layer, const void *in, const void *out_diff,
                       void *to) {
    const lrn_plan *plan = &layer->plan;
    size_t pieces = (plan->points + LRN_PIECE - 1) / LRN_PIECE;
#pragma omp parallel for schedule(static) if (layer->images * pieces > 1)
    for (size_t i = 0; i < layer->images * pieces; i++) {
        size_t first = i % pieces * LRN_PIECE, left = plan->points - first;
        size_t at = (i / pieces * plan->blocks * plan->points + first) * plan->lanes;
        size_t points = left < LRN_PIECE ? left : LRN_PIECE;
        if (out_diff)
            layer->kernels->backward(plan, at, points, in, out_diff, to);
        else
            layer->kernels->forward(plan, at, points, in, to);
    }
}

static int is_own(const lrn *layer) {
    return layer->kernels || layer->planes;
}

/* Backward if there is an out_diff. */
static dlc_status run_own(const lrn *layer, const dlc_layer_run *run,
                          const void *out_diff, void *to) {
    if (layer->planes)
        run_planes(layer, run->in[0], out_diff, to, run->scratch);
    else
        run_across(layer, run->in[0], out_diff, to);
    return DLC_OK;
}

/* ---- The layer ------------------------------------------------------------------ */

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->reads_in = layer->phase == DLC_PHASE_TRAIN;
    dlc_status status = prepare_own((lrn *)layer, memory);
    return status == DLC_ERR_UNSUPPORTED ? op_layer_prepare(layer, &kind, memory)
                                         : status;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const lrn *l = (const lrn *)layer;
    return is_own(l) ? run_own(l, run, NULL, run->out[0])
                     : op_layer_forward(layer, run);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    lrn *l = (lrn *)layer;
    if (!run->in_diff[0])
        return DLC_OK;
    if (is_own(l))
        return run_own(l, run, run->out_diff[0], run->in_diff[0]);
    return OP_RUN(
        &l->ops.backward, {DNNL_ARG_SRC, run->in[0]},
        {DNNL_ARG_DIFF_DST, run->out_diff[0]}, {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
        {DNNL_ARG_WORKSPACE, run->workspace}, {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const lrn *l = (const lrn *)layer;
    if (is_own(l))
        (void)snprintf(text, bytes, "own:%s",
                       l->planes ? l->planes->name : l->kernels->name);
    else
        op_layer_describe(layer, text, bytes);
}

const dlc_layer_ops lrn_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = op_layer_destroy,
    .infer = infer_image,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
