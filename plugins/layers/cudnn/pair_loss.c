/* sigmoid_cross_entropy_loss and euclidean_loss: each value has a target. */
#include "../shared/targets.h"
#include "cudnn.h"
#include "kernels/kernels.h"

typedef struct pair_loss {
    dlc_layer head;
    pair_loss_args args; /* without the pointers */
} pair_loss;

static dlc_status create(const dlc_layer_args *args, pair_loss_kind kind,
                         dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(pair_loss), out);
    if (status == DLC_OK)
        pair_loss_read(args->settings, kind, &((pair_loss *)*out)->args);
    return status;
}

static dlc_status create_sigmoid(const dlc_layer_args *args, dlc_layer **out) {
    return create(args, PAIR_LOSS_SIGMOID, out);
}

static dlc_status create_euclidean(const dlc_layer_args *args, dlc_layer **out) {
    return create(args, PAIR_LOSS_EUCLIDEAN, out);
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return pair_loss_infer(layer, shapes, &((pair_loss *)layer)->args);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    pair_loss_prepare(layer, &((pair_loss *)layer)->args, memory);
    return DLC_OK;
}

static pair_loss_args args_of(const dlc_layer *layer, const dlc_layer_run *run) {
    pair_loss_args args = ((const pair_loss *)layer)->args;
    args.values = run->in[0];
    args.targets = run->in[1];
    args.out = run->out[0];
    args.part = run->scratch;
    args.loss_scale = run->loss_scale;
    args.loss_scale_at = loss_scale_at(run);
    return args;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const pair_loss_args args = args_of(layer, run);
    return check_cuda(pair_loss_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    pair_loss_args args = args_of(layer, run);
    args.diff = run->in_diff[0];
    if (!args.diff)
        return DLC_OK;
    return check_cuda(pair_loss_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

#define PAIR_LOSS(create_) \
    { \
        .size = sizeof(dlc_layer_ops), .family = &cudnn_family, .create = (create_), \
        .destroy = layer_free, .infer = infer, .prepare = prepare, .forward = forward, \
        .backward = backward, .describe = describe_own, \
    }

const dlc_layer_ops sigmoid_cross_entropy_loss_ops = PAIR_LOSS(create_sigmoid);
const dlc_layer_ops euclidean_loss_ops = PAIR_LOSS(create_euclidean);
