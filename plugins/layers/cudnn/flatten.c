/* flatten: merges dimensions. In plain layout nothing has to be moved. */
#include "../shared/join.h"
#include "cudnn.h"
#include "kernels/kernels.h"

typedef struct flatten {
    axis_layer head;
    size_t bytes;
} flatten;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return axis_layer_alloc(args, sizeof(flatten), out);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->in[0].bytes = memory->out[0].bytes = 0;
    ((flatten *)layer)->bytes = dlc_tensor_bytes(&memory->in[0]);
    memory->in_place = 1;
    return DLC_OK;
}

static dlc_status move(dlc_layer *layer, const void *from, void *to, const char *what) {
    if (!to || from == to)
        return DLC_OK;
    return check_cuda(
        copy_run(to, from, ((const flatten *)layer)->bytes, layer->net->stream),
        layer->name, what);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    return move(layer, run->in[0], run->out[0], "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    return move(layer, run->out_diff[0], run->in_diff[0], "do its backward pass");
}

const dlc_layer_ops flatten_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = flatten_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
