/* One pass: the operations in order, forward and backward. */
#include "base/clock.h"
#include "net/internal.h"

#include <string.h>

static dlc_status copy(const dlc_net *net, void *dst, const void *src, size_t bytes) {
    return net->args.device_ops->copy(net->args.device, NULL, dst, src, bytes);
}

dlc_status dlc_net_set_input(dlc_net *net, const float *data, const int32_t *labels) {
    net_tensor *tensor = net->tensor;
    if (!dlc_net_on_host(net)) {
        DLC_TRY(copy(net, tensor[TENSOR_DATA].data, data,
                     dlc_tensor_bytes(&tensor[TENSOR_DATA].tensor)));
        return copy(net, tensor[TENSOR_LABEL].data, labels,
                    dlc_tensor_bytes(&tensor[TENSOR_LABEL].tensor));
    }
    /* Read in place; nothing is ever written there. */
    memcpy(&tensor[TENSOR_DATA].data, &data, sizeof data);
    memcpy(&tensor[TENSOR_LABEL].data, &labels, sizeof labels);
    return DLC_OK;
}

static void watch(const dlc_net *net, const char *phase, const net_op *op) {
    if (net->args.watch)
        net->args.watch(net->args.watch_context, phase, op->name);
}

static dlc_status named(dlc_status status, const net_op *op, const char *phase) {
    return status == DLC_OK ? DLC_OK : dlc_net_blame(op, phase, status);
}

static dlc_status forward_op(dlc_net *net, net_op *op) {
    if (!op->feature) {
        const net_tensor *in = &net->tensor[op->input[0]];
        return op->family->reorder_run(op->there, in->data,
                                       net->tensor[op->output[0]].data);
    }
    for (int32_t j = 0; j < op->plan.inputs; j++)
        op->in_data[j] = net->tensor[op->input[j]].data;
    return op->ops->forward(op->layer, &op->run);
}

dlc_status dlc_net_forward(dlc_net *net, int64_t iteration, int64_t sample) {
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        if (op->absorbed_by != NO_OP)
            continue;
        op->run.iteration = iteration;
        op->run.sample = sample;
        watch(net, "forward", op);
        uint64_t start = net->timed ? dlc_now_ns() : 0;
        DLC_TRY(named(forward_op(net, op), op, "forward"));
        if (net->timed)
            op->forward_ns += dlc_now_ns() - start;
    }
    return DLC_OK;
}

static dlc_status backward_op(dlc_net *net, net_op *op, float loss_scale) {
    if (!op->feature)
        return op->family->reorder_run(op->back, net->tensor[op->output[0]].diff,
                                       op->edge[0].part);
    op->run.loss_scale = loss_scale *
                         (float)net->args.graph->layer[op->node].loss_weight;
    return op->ops->backward(op->layer, &op->run);
}

/* Gradients of a tensor that several operations read are added up. */
static dlc_status add_parts(dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->plan.inputs; j++) {
        const net_edge *edge = &op->edge[j];
        if (!edge->wanted || !edge->add)
            continue;
        const net_tensor *tensor = &net->tensor[op->input[j]];
        size_t count = dlc_tensor_bytes(&tensor->tensor) / sizeof(float);
        DLC_TRY(net->args.device_ops->add(net->args.device, NULL, count, edge->part,
                                          tensor->diff));
    }
    return DLC_OK;
}

/* How far the gradient arena is final once `op` has run backward. */
static size_t final_elements(const dlc_net *net, const net_op *op) {
    size_t end = 0;
    for (int32_t j = 0; j < op->plan.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j];
        if (!param->is_buffer && param->offset + param->count > end)
            end = param->offset + param->count;
    }
    return end;
}

dlc_status dlc_net_backward(dlc_net *net, float loss_scale,
                            dlc_status (*done)(void *context, size_t elements),
                            void *context) {
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        net_op *op = &net->op[i];
        if (!op->runs_backward)
            continue;
        watch(net, "backward", op);
        uint64_t start = net->timed ? dlc_now_ns() : 0;
        DLC_TRY(named(backward_op(net, op, loss_scale), op, "backward"));
        DLC_TRY(named(add_parts(net, op), op, "backward"));
        if (net->timed)
            op->backward_ns += dlc_now_ns() - start;
        size_t end = final_elements(net, op);
        if (end && done)
            DLC_TRY(done(context, end));
    }
    return DLC_OK;
}

/* ---- Metrics ------------------------------------------------------------------------
 */

static int is_metric(const net_op *op) {
    return op->feature && op->absorbed_by == NO_OP &&
           op->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS);
}

int32_t dlc_net_metrics(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        count += is_metric(&net->op[i]);
    return count;
}

dlc_status dlc_net_metric(const dlc_net *net, int32_t i, dlc_metric *metric) {
    const net_op *op = net->op;
    for (; !is_metric(op) || i-- > 0; op++)
        ;
    float values[2];
    DLC_TRY(copy(net, values, op->out_data[0], sizeof values));
    *metric = (dlc_metric){.name = op->name,
                           .is_loss = (op->feature->caps & DLC_LAYER_LOSS) != 0,
                           .weight = net->args.graph->layer[op->node].loss_weight,
                           .sum = (double)values[0],
                           .count = (double)values[1]};
    return DLC_OK;
}
