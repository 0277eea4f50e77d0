/* The pass `recompute` saves memory for a little more work: activations that are cheap
 * to compute are not kept from forward to backward, but recomputed just before backward
 * reads them (Chen et al. 2016, "Training deep nets with sublinear memory cost", 4:
 * drop the results of low cost operations).
 */
#include "net/passes.h"

/* The operation whose backward runs in this step. */
static const net_op *op_at(const dlc_net *net, int32_t step) {
    return net->op[2 * net->ops - 1 - step];
}

/* Does backward still find this tensor where forward left it, at `step`? */
static int is_kept_until(const dlc_net *net, int32_t tensor, int32_t step) {
    const net_tensor *from = &net->tensor[tensor];
    if (!from->producer) /* the batch */
        return dlc_net_on_host(net);
    int32_t first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    return !from->recompute_before && last >= step;
}

static int is_recomputable(const net_op *op) {
    return op->caps & DLC_LAYER_RECOMPUTABLE && op->memory.outputs == 1;
}

/* Backward does not read the tensor, but its producer can be run again at `step`. */
static int can_recompute_too(const dlc_net *net, int32_t tensor, int32_t step) {
    int32_t first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    const net_op *op = net->tensor[tensor].producer;
    if (first != NO_STEP || !op)
        return 0;
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (!is_kept_until(net, op->input[j], step))
            return 0;
    return is_recomputable(op) && !net->tensor[tensor].recompute_before;
}

/* Can its only output be recomputed from inputs that are kept for other operations, or
 * that are themselves recomputed from such inputs? */
static int can_recompute(const dlc_net *net, const net_op *op, int32_t step) {
    int can = is_recomputable(op);
    for (int32_t j = 0; can && j < op->memory.inputs; j++)
        can = is_kept_until(net, op->input[j], step) ||
              can_recompute_too(net, op->input[j], step);
    return can;
}

/* Goes through the operations in the order of forward, so that a tensor is kept if the
 * one before it is not: at most two operations are run again for one tensor. */
dlc_status dlc_net_pass_recompute(dlc_net *net) {
    if (!net->args.recompute || !net_is_training(net))
        return DLC_OK;
    DLC_TRY(dlc_net_find_reads(net));
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = net->op[i];
        int32_t first, last;
        if (op->fused_into || !op->runs_backward)
            continue;
        dlc_net_backward_reads(net, op->output[0], &first, &last);
        if (first == NO_STEP || !can_recompute(net, op, first))
            continue;
        const net_op *reader = op_at(net, first);
        for (int32_t j = 0; j < op->memory.inputs; j++)
            if (!is_kept_until(net, op->input[j], first))
                net->tensor[op->input[j]].recompute_before = reader;
        net->tensor[op->output[0]].recompute_before = reader;
    }
    return DLC_OK;
}
