/* eltwise: combines inputs of one shape, element by element. Works on any layout,
 * padding included: sum, product and maximum of zeros are zero. */
#include "../shared/join.h"
#include "bfloat16.h"
#include "eltwise_kernels.h"
#include "isa.h"
#include "relu.h"

#include <stdio.h>
#include <string.h>

typedef struct eltwise {
    dlc_layer head;
    eltwise_settings how;
    int32_t inputs;
    fused_relu relu;
    bounds limit; /* of the fused activation, rounded to the output's type */
    int64_t count;
    int bf16;
    const eltwise_kernels *kernels;
} eltwise;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    eltwise_settings how;
    dlc_status status = eltwise_read(args, &how);
    if (status == DLC_OK)
        status = layer_alloc(args, sizeof(eltwise), out);
    if (status != DLC_OK)
        return status;
    ((eltwise *)*out)->how = how;
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    eltwise *elt = (eltwise *)layer;
    dlc_status status = eltwise_infer(layer, &elt->how, shapes);
    elt->inputs = shapes->inputs;
    if (status == DLC_OK)
        shapes->out[0].dtype = shapes->in[0].dtype; /* prepare decides if they differ */
    return status;
}

static dlc_status fuse(dlc_layer *layer, const dlc_feature *next,
                       const dlc_settings *settings) {
    return relu_or_clip_fuse(&((eltwise *)layer)->relu, next, settings);
}

const eltwise_kernels *eltwise_kernels_here(void) {
    static const eltwise_kernels *const all[] = ISA_TABLES(eltwise_);
    return all[isa_here()];
}

/* The sum of two inputs, as in residual nets. */
static int is_simple(const eltwise *elt) {
    return elt->how.kind == ELTWISE_SUM && elt->inputs == 2 && !elt->how.factors;
}

/* Backward compares the output with the bounds as they were stored. */
static bounds as_stored(const eltwise *elt, bounds limit) {
    if (!elt->bf16)
        return limit;
    return (bounds){.low = from_bf16(to_bf16(limit.low)),
                    .high = from_bf16(to_bf16(limit.high)),
                    .slope = limit.slope};
}

/* All tensors use the first layout that is not plain. Workspace: for the maximum, which
 * input it was. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    eltwise *elt = (eltwise *)layer;
    const dlc_layout *layout = NULL;
    for (int32_t i = 0; i < memory->inputs && !layout; i++)
        layout = memory->in[i].layout;
    if (!layout &&
        !(layout = layout_plain(layer->net, &memory->in[0].shape, memory->in[0].dtype)))
        return DLC_ERR_NOMEM;
    uint64_t all = memory->inputs < 64 ? (1ull << memory->inputs) - 1 : ~0ull;
    for (int32_t i = 0; i < memory->inputs; i++)
        layout_set(&memory->in[i], layout);
    layout_set(&memory->out[0], layout);
    elt->count = layout_count(layout);
    elt->bf16 = layout->dtype == DLC_BF16;
    elt->kernels = eltwise_kernels_here();
    elt->limit = as_stored(elt, relu_bounds(&elt->relu));
    memory->in_place = all;
    if (layer->phase != DLC_PHASE_TRAIN)
        return DLC_OK;
    if (elt->how.kind == ELTWISE_PRODUCT && memory->inputs > 1)
        memory->reads_in = all;
    if (elt->how.kind == ELTWISE_MAX)
        memory->workspace_bytes = (size_t)elt->count;
    memory->reads_out = elt->relu.on != 0;
    return DLC_OK;
}

/* ---- Chunks ------------------------------------------------------------------- */

/* Each chunk is read completely before anything of it is written, since outputs may
 * overwrite inputs. */

enum {
    CHUNK = 2048, /* elements at a time: they stay in the L1 cache */
    WORTH_THREADS = 4 * CHUNK,
    STREAM_BYTES = 8 << 20 /* more than the caches keep until it is read */
};

static size_t element_bytes(const eltwise *elt) {
    return elt->bf16 ? sizeof(uint16_t) : sizeof(float);
}

static int is_streamed(const eltwise *elt) {
    return (size_t)elt->count * element_bytes(elt) >= STREAM_BYTES;
}

static const void *chunk_at(const eltwise *elt, const void *tensor, int64_t at) {
    return (const char *)tensor + (size_t)at * element_bytes(elt);
}

static void *chunk_to(const eltwise *elt, void *tensor, int64_t at) {
    return tensor ? (char *)tensor + (size_t)at * element_bytes(elt) : NULL;
}

/* The chunk as float32: in place, or converted into `room`. */
static const float *chunk_read(const eltwise *elt, const void *tensor, int64_t at,
                               int64_t n, float *room) {
    const void *from = chunk_at(elt, tensor, at);
    if (!elt->bf16)
        return from;
    elt->kernels->widen((size_t)n, from, room);
    return room;
}

static void chunk_write(const eltwise *elt, const float *values, int64_t n,
                        void *tensor, int64_t at) {
    void *to = chunk_to(elt, tensor, at);
    if (elt->bf16)
        elt->kernels->narrow((size_t)n, values, to);
    else
        memcpy(to, values, (size_t)n * sizeof(float));
}

/* ---- Forward ------------------------------------------------------------------- */

/* Combines input i with the result of the inputs before it. */
static void combine_chunk(const eltwise *elt, int32_t i, int64_t n, const float *in,
                          float *out, uint8_t *which) {
    float factor = elt->how.factor[i];
    for (int64_t k = 0; k < n && elt->how.kind == ELTWISE_SUM; k++)
        out[k] += factor * in[k];
    for (int64_t k = 0; k < n && elt->how.kind == ELTWISE_PRODUCT; k++)
        out[k] *= in[k];
    for (int64_t k = 0; k < n && elt->how.kind == ELTWISE_MAX; k++) {
        if (!(in[k] > out[k]))
            continue;
        out[k] = in[k];
        if (which)
            which[k] = (uint8_t)i;
    }
}

static void forward_chunk(const eltwise *elt, const dlc_layer_run *run, int64_t at,
                          int64_t n) {
    float out[CHUNK], room[CHUNK];
    int keeps_index = elt->how.kind == ELTWISE_MAX &&
                      elt->head.phase == DLC_PHASE_TRAIN;
    uint8_t *which = keeps_index ? (uint8_t *)run->workspace + at : NULL;
    const float *in = chunk_read(elt, run->in[0], at, n, room);
    for (int64_t k = 0; k < n; k++)
        out[k] = elt->how.factor[0] * in[k];
    for (int64_t k = 0; k < n && which; k++)
        which[k] = 0;
    for (int32_t i = 1; i < elt->inputs; i++)
        combine_chunk(elt, i, n, chunk_read(elt, run->in[i], at, n, room), out, which);
    for (int64_t k = 0; k < n && elt->relu.on; k++)
        out[k] = bounds_apply(&elt->limit, out[k]);
    chunk_write(elt, out, n, run->out[0], at);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const eltwise *elt = (const eltwise *)layer;
    int simple = is_simple(elt), stream = is_streamed(elt);
#pragma omp parallel for schedule(static) if (elt->count > WORTH_THREADS)
    for (int64_t at = 0; at < elt->count; at += CHUNK) {
        int64_t n = elt->count - at < CHUNK ? elt->count - at : CHUNK;
        if (simple)
            elt->kernels->add(elt->bf16, (size_t)n, chunk_at(elt, run->in[0], at),
                              chunk_at(elt, run->in[1], at), &elt->limit, stream,
                              chunk_to(elt, run->out[0], at));
        else
            forward_chunk(elt, run, at, n);
    }
    return DLC_OK;
}

/* ---- Backward ------------------------------------------------------------------ */

/* The gradient of input i; `diff` is the gradient before the activation. */
static void gradient_chunk(const eltwise *elt, const dlc_layer_run *run, int32_t i,
                           int64_t at, int64_t n, const float *diff) {
    float to[CHUNK], room[CHUNK];
    const uint8_t *which = (const uint8_t *)run->workspace + at;
    for (int64_t k = 0; k < n && elt->how.kind == ELTWISE_MAX; k++)
        to[k] = which[k] == i ? diff[k] : 0;
    for (int64_t k = 0; k < n && elt->how.kind != ELTWISE_MAX; k++)
        to[k] = elt->how.factor[i] * diff[k];
    for (int32_t j = 0; j < elt->inputs && elt->how.kind == ELTWISE_PRODUCT; j++) {
        const float *in = chunk_read(elt, run->in[j], at, n, room);
        for (int64_t k = 0; j != i && k < n; k++)
            to[k] *= in[k];
    }
    chunk_write(elt, to, n, run->in_diff[i], at);
}

static void backward_chunk(const eltwise *elt, const dlc_layer_run *run, int64_t at,
                           int64_t n) {
    float diff[CHUNK], room[CHUNK];
    const float *out_diff = chunk_read(elt, run->out_diff[0], at, n, room);
    memcpy(diff, out_diff, (size_t)n * sizeof(float));
    if (elt->relu.on) {
        const float *out = chunk_read(elt, run->out[0], at, n, room);
        for (int64_t k = 0; k < n; k++)
            diff[k] = bounds_gradient(&elt->limit, out[k], diff[k]);
    }
    for (int32_t i = 0; i < elt->inputs; i++)
        if (run->in_diff[i])
            gradient_chunk(elt, run, i, at, n, diff);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const eltwise *elt = (const eltwise *)layer;
    int simple = is_simple(elt), stream = is_streamed(elt);
#pragma omp parallel for schedule(static) if (elt->count > WORTH_THREADS)
    for (int64_t at = 0; at < elt->count; at += CHUNK) {
        int64_t n = elt->count - at < CHUNK ? elt->count - at : CHUNK;
        if (simple)
            elt->kernels->gradient(elt->bf16, (size_t)n,
                                   elt->relu.on ? chunk_at(elt, run->out[0], at) : NULL,
                                   chunk_at(elt, run->out_diff[0], at), &elt->limit,
                                   stream, chunk_to(elt, run->in_diff[0], at),
                                   chunk_to(elt, run->in_diff[1], at));
        else
            backward_chunk(elt, run, at, n);
    }
    return DLC_OK;
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const eltwise *elt = (const eltwise *)layer;
    (void)snprintf(text, bytes, "own:%s%s", elt->kernels->name, relu_text(&elt->relu));
}

const dlc_layer_ops eltwise_ops = {
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
