/* concat: joins inputs along one axis. In memory each row of the output consists of one
 * run per input; forward and backward copy the runs. */
#include <stdio.h>

#include "kernels/kernels.h"
#include "tensors.h"

typedef struct concat {
    dlc_layer head;
    int axis;
    concat_args args; /* without the pointers */
} concat;

const dlc_option concat_options[] = {
    DLC_INT("axis", "1", 0, DLC_MAX_DIMS - 1, "dimension that adds up; 1: channels"),
    DLC_OPTIONS_END,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(concat), out);
    if (status == DLC_OK)
        ((concat *)*out)->axis = (int)host->get_int(args->settings, "axis");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    concat *cat = (concat *)layer;
    if (shapes->inputs < 1)
        return need_inputs(layer, shapes, 1);
    dlc_status status = need_floats(layer, shapes, 1, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    const dlc_shape *first = &shapes->in[0].shape;
    dlc_shape out = *first;
    if (cat->axis >= first->rank)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': axis = %d, but its first input %s has only the axes "
            "0 .. %d",
            layer->name, cat->axis, shape_print(first).text, (int)first->rank - 1);
    for (int32_t i = 1; i < shapes->inputs; i++) {
        const dlc_shape *in = &shapes->in[i].shape;
        int fits = in->rank == first->rank;
        for (int32_t d = 0; fits && d < first->rank; d++)
            fits = d == cat->axis || in->dims[d] == first->dims[d];
        if (!fits)
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': inputs may differ in axis %d only, but input 1 "
                "is %s and input %d is %s",
                layer->name, cat->axis, shape_print(first).text, (int)i + 1,
                shape_print(in).text);
        out.dims[cat->axis] += in->dims[cat->axis];
    }
    cat->args.inputs = shapes->inputs;
    shapes->out[0].shape = out;
    shapes->out[0].dtype = common_type(shapes->in, shapes->inputs);
    return DLC_OK;
}

/* Plain if all inputs are plain, else channels last. */
static dlc_status choose_layouts(context *net, dlc_layer_memory *memory, int *last) {
    dlc_dtype dtype = common_type(memory->in, memory->inputs);
    *last = 0;
    for (int32_t i = 0; i < memory->inputs; i++)
        *last |= memory->in[i].layout != NULL;
    for (int32_t i = 0; i <= memory->inputs; i++) {
        dlc_tensor *tensor = i < memory->inputs ? &memory->in[i] : &memory->out[0];
        const dlc_layout *layout = *last ? layout_last(net, &tensor->shape, dtype)
                                         : layout_plain(net, &tensor->shape, dtype);
        if (!layout)
            return DLC_ERR_NOMEM;
        layout_give(tensor, layout);
    }
    return DLC_OK;
}

/* The largest unit of copying that divides the bytes of all runs. */
static int32_t piece_of(const int64_t *bytes, int32_t runs) {
    int32_t piece = WIDE_BYTES;
    for (int32_t i = 0; i < runs; i++)
        while (bytes[i] % piece != 0)
            piece = piece > 4 ? 4 : 2;
    return piece;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    concat *cat = (concat *)layer;
    concat_args *args = &cat->args;
    int last = 0, order[DLC_MAX_DIMS] = {0};
    dlc_status status = choose_layouts(layer->net, memory, &last);
    if (status != DLC_OK)
        return status;
    const dlc_shape *out = &memory->out[0].shape;
    int64_t bytes[DLC_MAX_INPUTS];
    order_dims(out->rank, last, order);
    args->rows = 1;
    for (int place = 0; order[place] != cat->axis; place++)
        args->rows *= out->dims[order[place]];
    for (int32_t i = 0; i < args->inputs; i++)
        bytes[i] = dlc_shape_count(&memory->in[i].shape) / args->rows *
                   (int64_t)dlc_dtype_bytes(memory->out[0].dtype);
    args->piece = piece_of(bytes, args->inputs);
    for (int32_t i = 0; i < args->inputs; i++)
        args->before[i + 1] = args->before[i] + bytes[i] / args->piece;
    concat_ready(args);
    return need_countable(layer, "row", args->before[args->inputs]);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    concat_args args = ((const concat *)layer)->args;
    for (int32_t i = 0; i < args.inputs; i++)
        args.in[i] = run->in[i];
    args.out = run->out[0];
    return check_cuda(concat_run(&args, 0, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    concat_args args = ((const concat *)layer)->args;
    for (int32_t i = 0; i < args.inputs; i++)
        args.in[i] = run->in_diff[i];
    args.out = run->out_diff[0];
    return check_cuda(concat_run(&args, 1, layer->net->stream), layer->name,
                      "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
}

const dlc_layer_ops concat_ops = {
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
