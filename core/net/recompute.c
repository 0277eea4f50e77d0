/* Recomputation saves memory for a little more work: activations that are cheap to
 * compute are not kept from forward to backward, but recomputed just before backward
 * reads them (Chen et al. 2016, "Training deep nets with sublinear memory cost", 4:
 * drop the results of low cost operations).
 */
#include "net/internal.h"

/* Does backward still find this tensor where forward left it, at `step`? */
static int is_kept_until(const dlc_net *net, int32_t tensor, int32_t step) {
    const net_tensor *from = &net->tensor[tensor];
    if (from->producer == NO_OP) /* the batch */
        return dlc_net_on_host(net);
    int32_t first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    return from->recompute_before == NO_OP && last >= step;
}

static int is_recomputable(const net_op *op) {
    return op->feature && op->feature->caps & DLC_LAYER_RECOMPUTABLE &&
           op->memory.outputs == 1;
}

/* Backward does not read the tensor, but its producer can be run again at `step`. */
static int can_recompute_too(const dlc_net *net, int32_t tensor, int32_t step) {
    int32_t first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    if (first != NO_OP || net->tensor[tensor].producer == NO_OP)
        return 0;
    const net_op *op = &net->op[net->tensor[tensor].producer];
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (!is_kept_until(net, op->input[j], step))
            return 0;
    return is_recomputable(op) && net->tensor[tensor].recompute_before == NO_OP;
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
void dlc_net_plan_recompute(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = &net->op[i];
        if (!net_op_runs(op) || !op->runs_backward)
            continue;
        int32_t first, last, reader;
        dlc_net_backward_reads(net, op->output[0], &first, &last);
        if (first == NO_OP || !can_recompute(net, op, first))
            continue;
        reader = net_op_at(net, first);
        for (int32_t j = 0; j < op->memory.inputs; j++)
            if (!is_kept_until(net, op->input[j], first))
                net->tensor[op->input[j]].recompute_before = reader;
        net->tensor[op->output[0]].recompute_before = reader;
    }
}
