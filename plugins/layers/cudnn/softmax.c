/* softmax: turns scores into probabilities along an axis. */
#include "../shared/join.h"
#include "kernels/kernels.h"
#include "tensors.h"

typedef struct softmax {
    axis_layer head;
    softmax_args args; /* without the pointers */
} softmax;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return axis_layer_alloc(args, sizeof(softmax), out);
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return axis_infer(layer, ((const softmax *)layer)->head.axis, shapes);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    softmax *soft = (softmax *)layer;
    const dlc_shape *shape = &memory->in[0].shape;
    int last = 0, order[DLC_MAX_DIMS];
    memory->in[0].dtype = DLC_F32;
    const dlc_layout *layout = layout_simple(layer->net, &memory->in[0], &last);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    soft->args.outer = soft->args.inner = 1;
    soft->args.along = shape->dims[soft->head.axis];
    order_dims(shape->rank, last, order);
    for (int i = 0, seen = 0; i < shape->rank; i++) {
        int64_t size = shape->dims[order[i]];
        if (order[i] == soft->head.axis)
            seen = 1;
        else if (seen)
            soft->args.inner *= size;
        else
            soft->args.outer *= size;
    }
    memory->in_place = 1;
    if (layer->phase == DLC_PHASE_TRAIN)
        memory->reads_out = 1;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    softmax_args args = ((const softmax *)layer)->args;
    args.in = run->in[0];
    args.out = run->out[0];
    return check_cuda(softmax_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    softmax_args args = ((const softmax *)layer)->args;
    if (!run->in_diff[0])
        return DLC_OK;
    args.out = run->out[0];
    args.out_diff = run->out_diff[0];
    args.in_diff = run->in_diff[0];
    return check_cuda(softmax_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

const dlc_layer_ops softmax_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
