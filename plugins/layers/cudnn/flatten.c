/* flatten: merges dimensions. In plain layout nothing has to be moved. */
#include "../shared/join.h"
#include "cudnn.h"
#include "kernels/kernels.h"

static dlc_status move(dlc_layer *layer, const void *from, void *to, const char *what) {
    if (!to || from == to)
        return DLC_OK;
    return check_cuda(
        copy_run(to, from, ((const axis_layer *)layer)->bytes, layer->net->stream),
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
    .create = axis_layer_create,
    .destroy = layer_free,
    .infer = flatten_infer,
    .prepare = flatten_prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
