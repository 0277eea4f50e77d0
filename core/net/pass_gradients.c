/* The pass `gradients`: finds which gradients are needed, and thus whose backward runs,
 * and tells layers which gradients they share with other readers of a tensor. */
#include "net/passes.h"

static int has_trained_params(const net_op *op) {
    for (int32_t i = 0; i < op->memory.params; i++)
        if (net_is_trained(op, i))
            return 1;
    return 0;
}

static void mark_shared_gradients(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = net->op[i];
        for (int32_t j = 0; j < op->memory.inputs; j++)
            if (op->edge[j].wanted && dlc_net_later_gradient(net, op, op->input[j]))
                op->memory.shared_gradient |= 1ull << j;
    }
}

/* Does it pass on gradients? A layer without backward is where they end. */
static int has_backward(const net_op *op) {
    return !op->fused_into && op->has_backward;
}

/* Backward of an operation may run if a loss comes after it. */
static void trace_from_losses(dlc_net *net) {
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        const net_op *op = net->op[i];
        for (int32_t j = 0;
             has_backward(op) && op->reaches_loss && j < op->memory.inputs; j++) {
            net_op *producer = net->tensor[op->input[j]].producer;
            if (producer && !(op->shapes.no_gradient >> j & 1))
                producer->reaches_loss = 1;
        }
    }
}

/* Backward of an operation runs if there is also something to train at or before it. */
static void trace_from_params(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = net->op[i];
        if (!has_backward(op) || !op->reaches_loss)
            continue;
        int wants = has_trained_params(op);
        for (int32_t j = 0; j < op->memory.inputs; j++) {
            int wanted = net->tensor[op->input[j]].wants_gradient &&
                         !(op->shapes.no_gradient >> j & 1);
            op->edge[j].wanted = wanted;
            op->memory.wants_gradient |= (uint64_t)wanted << j;
            wants |= wanted;
        }
        op->runs_backward = wants;
        for (int32_t j = 0; j < op->memory.outputs; j++)
            net->tensor[op->output[j]].wants_gradient = wants;
    }
}

dlc_status dlc_net_pass_gradients(dlc_net *net) {
    if (!net_is_training(net))
        return DLC_OK;
    trace_from_losses(net);
    trace_from_params(net);
    DLC_TRY(dlc_net_find_reads(net));
    mark_shared_gradients(net);
    return DLC_OK;
}
