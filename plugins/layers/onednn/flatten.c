/* flatten: merges several dimensions into one. In plain layout nothing is copied. */
#include "../shared/join.h"
#include "onednn.h"

#include <string.h>

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    if (run->in[0] != run->out[0])
        memcpy(run->out[0], run->in[0], ((const axis_layer *)layer)->bytes);
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (run->in_diff[0] && run->in_diff[0] != run->out_diff[0])
        memcpy(run->in_diff[0], run->out_diff[0], ((const axis_layer *)layer)->bytes);
    return DLC_OK;
}

const dlc_layer_ops flatten_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = axis_layer_create,
    .destroy = layer_free,
    .infer = flatten_infer,
    .prepare = flatten_prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
