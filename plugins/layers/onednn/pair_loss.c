/* sigmoid_cross_entropy_loss and euclidean_loss: each value has a target. Our own
 * kernel; sums in an order that does not depend on threads. */
#include "../shared/targets.h"
#include "onednn.h"

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const pair_loss_args args = pair_loss_of_run(layer, run);
#pragma omp parallel for schedule(static) if (args.samples * args.each > 16384)
    for (int64_t n = 0; n < args.samples; n++)
        pair_loss_sample_done(&args, n, pair_loss_part(&args, n, 0, 1));
    pair_loss_total(&args);
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    pair_loss_args args = pair_loss_of_run(layer, run);
    args.diff = run->in_diff[0];
    if (!args.diff)
        return DLC_OK;
#pragma omp parallel for schedule(static) if (args.samples * args.each > 16384)
    for (int64_t i = 0; i < args.samples * args.each; i++)
        pair_loss_gradient(&args, i);
    return DLC_OK;
}

#define PAIR_LOSS(create_) \
    { \
        .size = sizeof(dlc_layer_ops), .family = &onednn_family, .create = (create_), \
        .destroy = layer_free, .infer = pair_loss_infer, .prepare = pair_loss_prepare, \
        .forward = forward, .backward = backward, .describe = describe_own, \
        .count = pair_loss_count, \
    }

const dlc_layer_ops sigmoid_cross_entropy_loss_ops = PAIR_LOSS(
    sigmoid_cross_entropy_loss_create);
const dlc_layer_ops euclidean_loss_ops = PAIR_LOSS(euclidean_loss_create);
