/* upsample: images enlarged by a whole factor, channel by channel; as PyTorch's
 * Upsample with align_corners = False. oneDNN enlarges quickly, but its backward pass
 * takes a hundred times as long as forward, so that for float32 is in this file. */
#include "../shared/upsample.h"

#include <math.h>
#include <string.h>

#include "op_layer.h"

typedef struct upsample {
    op_layer ops;
    upsample_settings how;

    /* Memory is [outer][rows][columns][inner], rows and columns of the input. Inner 0:
     * oneDNN has to go backward. */
    int64_t outer, rows, columns, inner;
} upsample;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(upsample), out);
    if (status == DLC_OK)
        ((upsample *)*out)->how = upsample_read(args->settings);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return upsample_infer(layer, &((upsample *)layer)->how, shapes);
}

static dnnl_alg_kind_t algorithm(const dlc_layer *layer) {
    return ((const upsample *)layer)->how.bilinear ? dnnl_resampling_linear
                                                   : dnnl_resampling_nearest;
}

static dnnl_status_t forward_pd(const dlc_layer *layer, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t dst,
                                dnnl_primitive_desc_t *pd) {
    return pd_resample_forward(env, prop, algorithm(layer), src, dst, pd);
}

static dnnl_status_t backward_pd(const dlc_layer *layer, const pd_env *env,
                                 md_t diff_src, md_t diff_dst,
                                 dnnl_primitive_desc_t *pd) {
    return pd_resample_backward(env, algorithm(layer), diff_src, diff_dst, pd);
}

static const op_layer_kind kind = {forward_pd, backward_pd};

/* Channels may be padded to whole blocks. */
static void find_runs(upsample *up, const dlc_layout *from, const dlc_shape *in) {
    up->inner = from->dtype != DLC_F32 ? 0
                : from->batch_block    ? (int64_t)from->batch_block
                : from->plain          ? 1
                : from->last           ? in->dims[1]
                                       : from->block;
    up->rows = in->dims[2];
    up->columns = in->dims[3];
    if (up->inner)
        up->outer = layout_count(from) / (up->rows * up->columns * up->inner);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    upsample *up = (upsample *)layer;
    const dlc_layout *from = NULL;
    dlc_status status = op_layer_prepare_by_channel(layer, &kind, memory, &from);
    if (status != DLC_OK || layer->phase != DLC_PHASE_TRAIN)
        return status;
    find_runs(up, from, &memory->in[0].shape);
    if (!up->inner)
        return op_layer_prepare_backward(layer, &kind, memory);
    size_t rows = (size_t)(up->outer * up->columns * up->inner) * sizeof(float);
    if (rows > memory->scratch_bytes)
        memory->scratch_bytes = rows;
    return DLC_OK;
}

/* ---- Backward ------------------------------------------------------------------ */

/* The pixels that one of the larger image is made of, and the share of the second. */
typedef struct taps {
    int64_t first, second;
    float share;
} taps;

static taps taps_of(const upsample *up, int64_t at, int64_t size) {
    double place = ((double)at + 0.5) / (double)up->how.factor - 0.5,
           left = floor(place);
    int64_t first = (int64_t)left;
    if (!up->how.bilinear)
        return (taps){at / up->how.factor, at / up->how.factor, 0};
    if (first < 0 || first + 1 == size) /* the edge */
        return (taps){first < 0 ? 0 : first, first < 0 ? 0 : first, 0};
    return (taps){first, first + 1, (float)(place - left)};
}

static void add_scaled(const float *from, float factor, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

/* Adds a row of the larger image's gradient up to a row of the smaller one's. */
static void shrink_row(const upsample *up, const float *diff, float *row) {
    memset(row, 0, (size_t)(up->columns * up->inner) * sizeof *row);
    for (int64_t x = 0; x < up->columns * up->how.factor; x++, diff += up->inner) {
        taps t = taps_of(up, x, up->columns);
        add_scaled(diff, 1 - t.share, up->inner, row + t.first * up->inner);
        if (t.share > 0)
            add_scaled(diff, t.share, up->inner, row + t.second * up->inner);
    }
}

static void shrink(const upsample *up, const float *diff, float *row, float *to) {
    int64_t width = up->columns * up->inner;
    memset(to, 0, (size_t)(up->rows * width) * sizeof *to);
    for (int64_t y = 0; y < up->rows * up->how.factor; y++) {
        taps t = taps_of(up, y, up->rows);
        shrink_row(up, diff + y * width * up->how.factor, row);
        add_scaled(row, 1 - t.share, width, to + t.first * width);
        if (t.share > 0)
            add_scaled(row, t.share, width, to + t.second * width);
    }
}

static void run_backward(const upsample *up, const dlc_layer_run *run) {
    int64_t width = up->columns * up->inner, area = up->rows * width;
    const float *diff = run->out_diff[0];
    float *rows = run->scratch, *to = run->in_diff[0];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < up->outer; i++)
        shrink(up, diff + i * area * up->how.factor * up->how.factor, rows + i * width,
               to + i * area);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    upsample *up = (upsample *)layer;
    if (!run->in_diff[0])
        return DLC_OK;
    if (up->inner) {
        run_backward(up, run);
        return DLC_OK;
    }
    return OP_RUN(&up->ops.backward, {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

const dlc_layer_ops upsample_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = op_layer_destroy,
    .infer = infer,
    .prepare = prepare,
    .forward = op_layer_forward,
    .backward = backward,
    .describe = op_layer_describe,
};
