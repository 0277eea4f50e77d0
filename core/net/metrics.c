/* The losses and metrics of a pass. */
#include "net/ir.h"

/* A metric's sum and count over the whole batch. */
static const float *sums_of(const dlc_net *net, const net_op *op) {
    return op->chunk_metric_buffer == NO_BUFFER
               ? net->tensor[op->output[0]].data
               : dlc_net_buffer_at(net, op->chunk_metric_buffer);
}

int32_t dlc_net_metrics(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        count += net_is_metric(net->op[i]);
    return count;
}

dlc_status dlc_net_metric(const dlc_net *net, int32_t i, dlc_metric *metric) {
    net_op *const *at = net->op;
    while (!net_is_metric(*at) || i-- > 0)
        at++;
    const net_op *op = *at;
    float values[2];
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(net->args.device_ops->copy(net->args.device, NULL, values, sums_of(net, op),
                                       sizeof values));
    *metric = (dlc_metric){.name = op->name,
                           .is_loss = (op->caps & DLC_LAYER_LOSS) != 0,
                           .weight = net->args.graph->layer[op->node].loss_weight,
                           .sum = (double)values[0],
                           .count = (double)values[1]};
    return DLC_OK;
}

dlc_status dlc_net_add_losses(const dlc_net *net, float share, float *sum) {
    const dlc_net_args *args = &net->args;
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = net->op[i];
        if (!net_is_metric(op) || !(op->caps & DLC_LAYER_LOSS))
            continue;
        double weight = args->graph->layer[op->node].loss_weight;
        DLC_TRY(args->device_ops->add_mean(
            args->device, args->queue, share * (float)weight, sums_of(net, op), sum));
    }
    return DLC_OK;
}
