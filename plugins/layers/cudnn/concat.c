/* concat: joins inputs along one axis. In memory each row of the output consists of one
 * run per input; forward and backward copy the runs. */
#include "../shared/join.h"
#include "kernels/kernels.h"
#include "tensors.h"

typedef struct concat {
    axis_layer head;
    concat_args args; /* without the pointers */
} concat;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return axis_layer_alloc(args, sizeof(concat), out);
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
    args->inputs = memory->inputs;
    int last = 0, order[DLC_MAX_DIMS] = {0};
    dlc_status status = choose_layouts(layer->net, memory, &last);
    if (status != DLC_OK)
        return status;
    const dlc_shape *out = &memory->out[0].shape;
    int64_t bytes[DLC_MAX_INPUTS];
    order_dims(out->rank, last, order);
    args->rows = 1;
    for (int place = 0; order[place] != cat->head.axis; place++)
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

const dlc_layer_ops concat_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = concat_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
