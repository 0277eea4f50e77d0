/* softmax: turns scores into probabilities along an axis. */
#include <stdio.h>

#include "kernels/kernels.h"
#include "tensors.h"

typedef struct softmax {
    dlc_layer head;
    int axis;
    softmax_args args; /* without the pointers */
} softmax;

const dlc_option softmax_options[] = {
    DLC_INT("axis", "1", 0, DLC_MAX_DIMS - 1,
            "dimension along which the outputs add up to 1"),
    DLC_OPTIONS_END,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(softmax), out);
    if (status == DLC_OK)
        ((softmax *)*out)->axis = (int)host->get_int(args->settings, "axis");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    const softmax *soft = (const softmax *)layer;
    dlc_status status = need_inputs(layer, shapes, 1);
    if (status == DLC_OK)
        status = need_floats(layer, shapes, 1, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    if (soft->axis >= shapes->in[0].shape.rank)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': axis = %d, but its input %s has only the axes "
                          "0 .. %d",
                          layer->name, soft->axis,
                          shape_print(&shapes->in[0].shape).text,
                          (int)shapes->in[0].shape.rank - 1);
    same_shape(shapes);
    shapes->out[0].dtype = DLC_F32;
    return DLC_OK;
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
    soft->args.along = shape->dims[soft->axis];
    order_dims(shape->rank, last, order);
    for (int i = 0, seen = 0; i < shape->rank; i++) {
        int64_t size = shape->dims[order[i]];
        if (order[i] == soft->axis)
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

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
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
    .describe = describe,
};
