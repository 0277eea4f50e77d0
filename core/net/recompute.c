/* Less memory for a little more work: what is cheap to compute is not kept from forward
 * to backward but made again just before backward reads it (Chen et al. 2016, "Training
 * deep nets with sublinear memory cost", 4: drop the results of low cost operations).
 */
#include "net/internal.h"

/* Does backward still find this tensor where forward left it, at `step`? */
static int is_kept_until(const dlc_net *net, int32_t tensor, int32_t step) {
    const net_tensor *from = &net->tensor[tensor];
    if (from->producer == NO_OP) /* the batch */
        return dlc_net_on_host(net);
    int32_t first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    return from->again_before == NO_OP && last >= step;
}

static int is_repeatable(const net_op *op) {
    return op->feature && op->feature->caps & DLC_LAYER_REPEATABLE &&
           op->plan.outputs == 1;
}

/* Of no use to backward itself, but there again at `step` if its producer runs again.
 */
static int can_pass_through(const dlc_net *net, int32_t tensor, int32_t step) {
    int32_t first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    if (first != NO_OP || net->tensor[tensor].producer == NO_OP)
        return 0;
    const net_op *op = &net->op[net->tensor[tensor].producer];
    for (int32_t j = 0; j < op->plan.inputs; j++)
        if (!is_kept_until(net, op->input[j], step))
            return 0;
    return is_repeatable(op) && net->tensor[tensor].again_before == NO_OP;
}

/* One whose only output can be had again from inputs that are kept for others, or that
 * are one such step away. */
static int can_run_again(const dlc_net *net, const net_op *op, int32_t step) {
    int can = is_repeatable(op);
    for (int32_t j = 0; can && j < op->plan.inputs; j++)
        can = is_kept_until(net, op->input[j], step) ||
              can_pass_through(net, op->input[j], step);
    return can;
}

/* In the order of forward, so that a tensor is kept wherever the one before it was
 * given up: at most two operations are run again for one tensor. */
void dlc_net_plan_again(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = &net->op[i];
        if (!net_is_running(op) || !op->runs_backward)
            continue;
        int32_t first, last, reader;
        dlc_net_backward_reads(net, op->output[0], &first, &last);
        if (first == NO_OP || !can_run_again(net, op, first))
            continue;
        reader = net_op_at(net, first);
        for (int32_t j = 0; j < op->plan.inputs; j++)
            if (!is_kept_until(net, op->input[j], first))
                net->tensor[op->input[j]].again_before = reader;
        net->tensor[op->output[0]].again_before = reader;
    }
}
