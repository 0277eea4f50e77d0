/* The boundary of a net that is one pipeline stage. Tensors that come from other stages
 * are in memory that the pass provides. An outgoing tensor is converted to plain by an
 * operation of its own; these are the last operations of forward, so that in backward
 * the gradient that comes from outside is the first, and is planned like any other.
 * This file also switches between the passes that are in flight. */
#include "net/internal.h"

/* ---- Incoming tensors -------------------------------------------------------- */

dlc_status dlc_net_add_boundaries_in(dlc_net *net) {
    for (int32_t i = 0; i < net->args.boundaries_in; i++) {
        const dlc_net_boundary *boundary = &net->args.boundary_in[i];
        dlc_tensor tensor = {.dtype = boundary->dtype, .shape = boundary->shape};
        int32_t added = dlc_net_tensor_add(net, &tensor, NO_OP);
        if (added < 0)
            return added;
        net->tensor[added].is_boundary = 1;
        net->tensor[added].wants_gradient = boundary->gradient &&
                                            net->args.phase == DLC_PHASE_TRAIN;
    }
    return DLC_OK;
}

/* Incoming tensors follow those of the batch. */
static net_tensor *tensor_in(const dlc_net *net, int32_t i) {
    return &net->tensor[TENSOR_LABEL + 1 + i];
}

int32_t dlc_net_boundary_tensor(const dlc_net *net, dlc_graph_input input) {
    for (int32_t i = 0; i < net->args.boundaries_in; i++)
        if (net->args.boundary_in[i].layer == input.layer &&
            net->args.boundary_in[i].output == input.output)
            return TENSOR_LABEL + 1 + i;
    return NO_OP;
}

/* ---- Outgoing tensors -------------------------------------------------------- */

dlc_status dlc_net_add_boundary_op(dlc_net *net, net_op *op,
                                   const dlc_net_boundary *boundary) {
    DLC_TRY(dlc_net_allocate_op(op, 1));
    const net_op *producer = dlc_net_op_of_node(net, boundary->layer);
    op->node = NO_OP;
    op->boundary = boundary;
    op->name = net->args.graph->layer[boundary->layer].name;
    if (!producer || boundary->output >= producer->memory.outputs)
        return dlc_fail(DLC_ERR_INTERNAL, "layer '%s' has no output to send", op->name);
    op->input[0] = producer->output[boundary->output];
    op->in[0] = net->tensor[op->input[0]].tensor;
    op->out[0] = (dlc_tensor){.dtype = boundary->dtype, .shape = boundary->shape};
    int32_t added = dlc_net_tensor_add(net, &op->out[0], (int32_t)(op - net->op));
    if (added < 0)
        return added;
    op->output[0] = added;
    return DLC_OK;
}

/* A tensor in a family's layout or type is converted by it; any other one is copied. */
dlc_status dlc_net_prepare_boundary(dlc_net *net, net_op *op) {
    const net_tensor *from = &net->tensor[op->input[0]];
    op->in[0] = from->tensor;
    if (!from->family)
        return DLC_OK;
    op->family = from->family;
    op->context = from->context;
    DLC_TRY(op->family->reorder_create(op->context, &op->in[0], &op->out[0],
                                       &op->reorder_forward));
    return op->runs_backward
               ? op->family->reorder_create(op->context, &op->out[0], &op->in[0],
                                            &op->reorder_backward)
               : DLC_OK;
}

dlc_status dlc_net_run_boundary(const dlc_net *net, dlc_reorder *reorder,
                                const net_op *op, const void *src, void *dst) {
    const dlc_net_args *args = &net->args;
    if (reorder)
        return op->family->reorder_run(reorder, src, dst);
    return args->device_ops->copy(args->device, args->queue, dst, src,
                                  dlc_tensor_bytes(&op->out[0]));
}

/* ---- Passes ------------------------------------------------------------------ */

static void point_boundaries(dlc_net *net, const dlc_net_pass *pass) {
    for (int32_t i = 0; i < net->args.boundaries_in; i++) {
        net_tensor *tensor = tensor_in(net, i);
        tensor->data = pass->in[i];
        tensor->diff = pass->in_diff ? pass->in_diff[i] : NULL;
    }
    int32_t out = 0;
    for (int32_t i = 0; i < net->ops; i++) {
        if (!net->op[i].boundary)
            continue;
        net_tensor *tensor = &net->tensor[net->op[i].output[0]];
        tensor->data = pass->out[out];
        tensor->diff = pass->out_diff ? pass->out_diff[out] : NULL;
        out++;
    }
}

static void *moved(void *address, ptrdiff_t by) {
    return address ? (char *)address + by : NULL;
}

/* Moves all pointers to another set of buffers, which have the same offsets in each. */
static void use_micro_batch_buffer(dlc_net *net, int32_t index) {
    size_t at = (size_t)index * dlc_net_pass_bytes(net);
    ptrdiff_t by = (ptrdiff_t)at - (ptrdiff_t)net->pass_offset;
    net->pass_offset = at;
    for (int32_t i = 0; by != 0 && i < net->tensors; i++) {
        net_tensor *tensor = &net->tensor[i];
        if (tensor->data_buffer >= 0)
            tensor->data = moved(tensor->data, by);
        if (tensor->diff_buffer >= 0)
            tensor->diff = moved(tensor->diff, by);
        if (tensor->recompute_buffer >= 0)
            tensor->recomputed = moved(tensor->recomputed, by);
    }
}

void dlc_net_begin_pass(dlc_net *net, const dlc_net_pass *pass) {
    use_micro_batch_buffer(net, pass->micro_batch_buffer);
    point_boundaries(net, pass);
    dlc_net_point(net);
    for (int32_t i = 0; i < net->ops; i++) {
        net->op[i].run.iteration = pass->iteration;
        net->op[i].run.sample = pass->sample;
    }
}

void dlc_net_set_gradient_arena(dlc_net *net, float *arena) {
    net->gradient_arena = arena;
}

/* ---- Outlines ---------------------------------------------------------------- */

/* The type in which a tensor is transferred between stages. */
static dlc_dtype plain_type(const dlc_tensor *tensor) {
    return net_is_16_bit(tensor) ? DLC_F32 : tensor->dtype;
}

int dlc_net_output(const dlc_net *net, int32_t layer, int32_t output,
                   dlc_net_boundary *boundary) {
    const net_op *op = dlc_net_op_of_node(net, layer);
    if (!op || output >= op->memory.outputs)
        return 0;
    const net_tensor *tensor = &net->tensor[op->output[output]];
    *boundary = (dlc_net_boundary){.layer = layer,
                                   .output = output,
                                   .dtype = plain_type(&tensor->tensor),
                                   .shape = tensor->tensor.shape};
    return 1;
}

int dlc_net_wants_gradient(const dlc_net *net, int32_t layer, int32_t output,
                           int32_t first, int32_t end) {
    const net_op *producer = dlc_net_op_of_node(net, layer);
    for (int32_t i = 0; producer && i < net->ops; i++) {
        const net_op *op = &net->op[i];
        for (int32_t j = 0; j < op->memory.inputs; j++)
            if (op->node >= first && op->node < end && op->edge[j].wanted &&
                op->input[j] == producer->output[output])
                return 1;
    }
    return 0;
}
