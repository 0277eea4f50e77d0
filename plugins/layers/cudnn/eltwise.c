/* eltwise: combines inputs of one shape element by element, in their order in
 * memory. */
#include <stdio.h>
#include <string.h>

#include "../shared/join.h"
#include "kernels/kernels.h"
#include "relu.h"
#include "tensors.h"

typedef struct eltwise {
    dlc_layer head;
    eltwise_args args; /* without the pointers */
    eltwise_settings how;
    fused_relu relu;
} eltwise;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    eltwise_settings how;
    dlc_status status = eltwise_read(args, &how);
    if (status == DLC_OK)
        status = layer_alloc(args, sizeof(eltwise), out);
    if (status != DLC_OK)
        return status;
    eltwise *elt = (eltwise *)*out;
    elt->how = how;
    elt->args.operation = how.kind;
    memcpy(elt->args.factor, how.factor, sizeof how.factor);
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    eltwise *elt = (eltwise *)layer;
    elt->args.inputs = shapes->inputs;
    return eltwise_infer(layer, &elt->how, shapes);
}

static dlc_status fuse(dlc_layer *layer, const dlc_feature *next,
                       const dlc_settings *settings) {
    return relu_or_clip_fuse(&((eltwise *)layer)->relu, next, settings);
}

/* All tensors get channels last unless every input is plain. For the maximum, the
 * workspace holds which input it was. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    eltwise *elt = (eltwise *)layer;
    const dlc_shape *shape = &memory->in[0].shape;
    dlc_dtype dtype = common_type(memory->in, memory->inputs);
    int last = 0;
    for (int32_t i = 0; i < memory->inputs; i++)
        last |= memory->in[i].layout != NULL;
    const dlc_layout *layout = last ? layout_last(layer->net, shape, dtype)
                                    : layout_plain(layer->net, shape, dtype);
    if (!layout)
        return DLC_ERR_NOMEM;
    uint64_t all = memory->inputs < 64 ? (1ull << memory->inputs) - 1 : ~0ull;
    for (int32_t i = 0; i < memory->inputs; i++)
        layout_give(&memory->in[i], layout);
    layout_give(&memory->out[0], layout);
    elt->args.type = dtype;
    elt->args.count = layout->count;
    elt->args.bounded = elt->relu.on;
    elt->args.limit = relu_stored(&elt->relu, dtype);
    memory->in_place = all;
    if (layer->phase != DLC_PHASE_TRAIN)
        return DLC_OK;
    if (elt->args.operation == ELTWISE_PRODUCT && memory->inputs > 1)
        memory->reads_in = all;
    if (elt->args.operation == ELTWISE_MAX)
        memory->workspace_bytes = (size_t)layout->count;
    memory->reads_out = elt->relu.on != 0;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    eltwise_args args = ((const eltwise *)layer)->args;
    for (int32_t i = 0; i < args.inputs; i++)
        args.in[i] = run->in[i];
    args.to = run->out[0];
    if (layer->phase == DLC_PHASE_TRAIN)
        args.which = run->workspace;
    return check_cuda(eltwise_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

/* Is each gradient that of a plain sum, which is already in place? */
static int nothing_to_do(const eltwise_args *args) {
    for (int32_t i = 0; i < args->inputs; i++)
        if (args->in_diff[i] && !eltwise_in_place(args, i))
            return 0;
    return 1;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    eltwise_args args = ((const eltwise *)layer)->args;
    for (int32_t i = 0; i < args.inputs; i++) {
        args.in[i] = run->in[i];
        args.in_diff[i] = run->in_diff[i];
    }
    args.out = run->out[0];
    args.out_diff = run->out_diff[0];
    args.which = run->workspace;
    if (nothing_to_do(&args))
        return DLC_OK;
    return check_cuda(eltwise_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "own%s", relu_text(&((const eltwise *)layer)->relu));
}

const dlc_layer_ops eltwise_ops = {
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
