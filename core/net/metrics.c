/* The losses and metrics of a pass. */
#include "base/status.h"
#include "net/graph_search.h"
#include "net/layer.h"
#include "plugin/answers.h"

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

/* ---- Losses ---------------------------------------------------------------------- */

static int is_loss(const net_op *op) {
    return net_is_metric(op) && op->caps & DLC_LAYER_LOSS;
}

int32_t dlc_net_losses(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        count += is_loss(net->op[i]);
    return count;
}

static net_op *loss_op(const dlc_net *net, int32_t i) {
    net_op *const *at = net->op;
    while (!is_loss(*at) || i-- > 0)
        at++;
    return *at;
}

dlc_net_loss dlc_net_loss_at(const dlc_net *net, int32_t i) {
    const net_op *op = loss_op(net, i);
    const dlc_graph_layer *layer = &net->args.graph->layer[op->node];
    const dlc_layer_ops *calls = layer->feature->ops;
    int is_told = layer->inputs > 1 && layer->input[1].layer == DLC_FROM_DATA &&
                  DLC_CAN(calls, count);
    return (dlc_net_loss){.number = dlc_graph_losses(net->args.graph, op->node),
                          .field = is_told ? layer->input[1].output : -1};
}

dlc_status dlc_net_count(const dlc_net *net, int32_t i, const void *targets,
                         int64_t samples, double *counted) {
    const net_op *op = loss_op(net, i);
    const net_layer *layer = (const net_layer *)op;
    return DLC_ASK(layer->calls, "count",
                   layer->calls->count(layer->layer, targets, samples, counted));
}

void dlc_net_set_loss_share(dlc_net *net, int32_t i, float share,
                            const double *counted) {
    net_op *op = loss_op(net, i);
    op->loss_share = share;
    op->counted = counted;
}

dlc_status dlc_net_add_loss(const dlc_net *net, int32_t i, float share, float *sum) {
    const dlc_net_args *args = &net->args;
    const net_op *op = loss_op(net, i);
    double weight = args->graph->layer[op->node].loss_weight;
    return args->device_ops->add_mean(args->device, args->queue, share * (float)weight,
                                      sums_of(net, op), sum);
}
