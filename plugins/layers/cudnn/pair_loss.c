/* sigmoid_cross_entropy_loss and euclidean_loss: each value has a target. */
#include "../shared/targets.h"
#include "cudnn.h"
#include "kernels/kernels.h"

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const pair_loss_args args = pair_loss_of_run(layer, run);
    return check_cuda(pair_loss_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    pair_loss_args args = pair_loss_of_run(layer, run);
    args.diff = run->in_diff[0];
    if (!args.diff)
        return DLC_OK;
    args.loss_scale_at = loss_scale_at(run);
    return check_cuda(pair_loss_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

#define PAIR_LOSS(create_) \
    { \
        .size = sizeof(dlc_layer_ops), .family = &cudnn_family, .create = (create_), \
        .destroy = layer_free, .infer = pair_loss_infer, .prepare = pair_loss_prepare, \
        .forward = forward, .backward = backward, .describe = describe_own, \
        .count = pair_loss_count, \
    }

const dlc_layer_ops sigmoid_cross_entropy_loss_ops = PAIR_LOSS(
    sigmoid_cross_entropy_loss_create);
const dlc_layer_ops euclidean_loss_ops = PAIR_LOSS(euclidean_loss_create);
