/* The passes that prepare backward: gradients, fork_sums and recompute. */
#include "net/ops.h"

/* ---- The pass `gradients` -------------------------------------------------------- */

/* Finds which gradients are needed, and thus whose backward runs, and tells layers
 * which gradients they share with other readers of a tensor. */

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

/* ---- The pass `fork_sums` -------------------------------------------------------- */

/* Where several operations read a tensor, their gradients are added up in the order of
 * backward. The reader whose backward runs first writes the tensor's gradient; later
 * ones accumulate into it, or write a part that is then added. */

static int reads_before(const net_op *op, int32_t j) {
    for (int32_t k = 0; k < j; k++)
        if (op->edge[k].wanted && op->input[k] == op->input[j])
            return 1;
    return 0;
}

/* A layer cannot accumulate into what it writes in the same call. */
static void choose_sum(const dlc_net *net, net_op *op, int32_t j) {
    int reads_twice = reads_before(op, j);
    int written = reads_twice || dlc_net_later_gradient(net, op, op->input[j]);
    int can = !reads_twice && op->memory.accumulates_gradient >> j & 1;
    op->edge[j].accumulates = written && can;
    op->edge[j].add = written && !can;
}

dlc_status dlc_net_pass_fork_sums(dlc_net *net) {
    DLC_TRY(dlc_net_find_reads(net));
    for (int32_t i = 0; i < net->ops; i++)
        for (int32_t j = 0; j < net->op[i]->memory.inputs; j++)
            if (net->op[i]->runs_backward && net->op[i]->edge[j].wanted)
                choose_sum(net, net->op[i], j);
    return DLC_OK;
}

/* ---- The pass `recompute` -------------------------------------------------------- */

/* Saves memory for a little more work: activations that are cheap to compute are not
 * kept from forward to backward, but recomputed just before backward reads them (Chen
 * et al. 2016, "Training deep nets with sublinear memory cost", 4: drop the results of
 * low cost operations). */

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
