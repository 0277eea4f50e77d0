/* The pass `memory`: plans a buffer for each tensor, gradient and workspace, in use
 * from the first step that writes it to the last that reads it. Step i is forward of
 * operation i, step 2n-1-i its backward. */
#include "net/passes.h"

static void use_until(dlc_net *net, int32_t buffer, int32_t step) {
    if (buffer >= 0 && net->buffer[buffer].last < step)
        net->buffer[buffer].last = step;
}

/* ---- Activations ----------------------------------------------------------------- */

/* The last step of forward that writes or reads the tensor. */
static int32_t last_forward_read(const dlc_net *net, int32_t tensor) {
    const net_op *producer = net->tensor[tensor].producer;
    int32_t written = producer ? producer->index : NO_STEP;
    int32_t last = net->reads[tensor].last; /* step i is operation i */
    return last > written ? last : written;
}

static int is_measured(const net_tensor *tensor) {
    return tensor->producer && tensor->producer->caps & DLC_LAYER_METRIC;
}

/* The last step that reads the tensor where forward left it. */
static int32_t last_read(const dlc_net *net, int32_t tensor) {
    const net_tensor *from = &net->tensor[tensor];
    int32_t first, last;
    if (is_measured(from)) /* metrics are read after the pass */
        return 2 * net->ops - 1;
    dlc_net_backward_reads(net, tensor, &first, &last);
    if (last == NO_STEP || from->recompute_before)
        last = last_forward_read(net, tensor);
    return last > from->kept_until ? last : from->kept_until;
}

/* The buffer of an input that is last used by the operation, and that its output may
 * reuse; NO_BUFFER if there is none. */
static int32_t buffer_to_reuse(const dlc_net *net, const net_op *op) {
    size_t bytes = dlc_tensor_bytes(&net->tensor[op->output[0]].tensor);
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_tensor *in = &net->tensor[op->input[j]];
        if (op->memory.in_place >> j & 1 && in->data_buffer != NO_BUFFER &&
            in->producer && dlc_tensor_bytes(&in->tensor) == bytes &&
            net->buffer[in->data_buffer].last <= op->index)
            return in->data_buffer;
    }
    return NO_BUFFER;
}

static dlc_status plan_scratch(dlc_net *net, net_op *op, net_run kind, int32_t step) {
    if (!op->memory.scratch_bytes)
        return DLC_OK;
    return dlc_net_buffer_add(net, op->memory.scratch_bytes, step, step,
                              &op->scratch_buffer[kind]);
}

/* Plans the buffer of a tensor that is recomputed in backward. */
static dlc_status plan_recomputed(dlc_net *net, int32_t index) {
    net_tensor *tensor = &net->tensor[index];
    int32_t made = net_backward_step(net, tensor->recompute_before), first, last;
    dlc_net_backward_reads(net, index, &first, &last);
    DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&tensor->tensor), made,
                               last > made ? last : made, &tensor->recompute_buffer));
    return plan_scratch(net, tensor->producer, NET_RUN_RECOMPUTE, made);
}

static dlc_status plan_output(dlc_net *net, const net_op *op, int32_t j) {
    net_tensor *out = &net->tensor[op->output[j]];
    int32_t last = last_read(net, op->output[j]);
    if (out->is_boundary) /* in memory of the pass */
        return DLC_OK;
    out->data_buffer = j == 0 ? buffer_to_reuse(net, op) : NO_BUFFER;
    if (out->data_buffer == NO_BUFFER)
        DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&out->tensor), op->index, last,
                                   &out->data_buffer));
    use_until(net, out->data_buffer, last);
    return out->recompute_before ? plan_recomputed(net, op->output[j]) : DLC_OK;
}

static dlc_status plan_workspace(dlc_net *net, net_op *op) {
    int32_t last = op->runs_backward ? net_backward_step(net, op) : op->index;
    if (!op->memory.workspace_bytes)
        return DLC_OK;
    return dlc_net_buffer_add(net, op->memory.workspace_bytes, op->index, last,
                              &op->workspace_buffer);
}

/* The batch is read in place; only a device with memory of its own needs a copy, also
 * of labels that no layer of a stage reads. */
static dlc_status plan_batch(dlc_net *net) {
    for (int32_t i = 0; i < net->args.fields.count && !dlc_net_on_host(net); i++) {
        net_tensor *tensor = &net->tensor[i];
        int32_t last = last_read(net, i);
        DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&tensor->tensor), 0,
                                   last > 0 ? last : 0, &tensor->data_buffer));
    }
    return DLC_OK;
}

/* ---- Gradients ------------------------------------------------------------------- */

/* May the gradient of input `j` overwrite that of the output, which is not read after
 * this step? Only one input may. */
static int may_overwrite(const dlc_net *net, const net_op *op, int32_t j) {
    const net_tensor *in = &net->tensor[op->input[j]],
                     *out = &net->tensor[op->output[0]];
    for (int32_t k = 0; k < j; k++)
        if (op->edge[k].wanted && op->edge[k].buffer == out->diff_buffer)
            return 0;
    return op->memory.in_place >> j & 1 && out->diff_buffer >= 0 &&
           dlc_tensor_bytes(&out->tensor) == dlc_tensor_bytes(&in->tensor) &&
           net->buffer[out->diff_buffer].last <= net_backward_step(net, op);
}

/* Plans a buffer for the gradient of one input, or for a part of it. */
static dlc_status plan_written(dlc_net *net, const net_op *op, int32_t j) {
    net_tensor *in = &net->tensor[op->input[j]];
    net_edge *edge = &op->edge[j];
    int32_t step = net_backward_step(net, op);
    if (may_overwrite(net, op, j))
        edge->buffer = net->tensor[op->output[0]].diff_buffer;
    else
        DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&in->tensor), step, step,
                                   &edge->buffer));
    if (edge->add)
        return DLC_OK;
    in->diff_buffer = edge->buffer;
    if (in->producer)
        use_until(net, edge->buffer, net_backward_step(net, in->producer));
    return DLC_OK;
}

/* Plans the gradient of one input. */
static dlc_status plan_edge(dlc_net *net, const net_op *op, int32_t j) {
    net_tensor *in = &net->tensor[op->input[j]];
    net_edge *edge = &op->edge[j];
    if (in->is_boundary && !edge->add && !edge->accumulates)
        in->diff_buffer = BOUNDARY_BUFFER;
    else if (!edge->accumulates)
        return plan_written(net, op, j);
    edge->buffer = in->diff_buffer;
    return DLC_OK;
}

static dlc_status plan_gradients(dlc_net *net) {
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        const net_op *op = net->op[i];
        for (int32_t j = 0; op->runs_backward && j < op->memory.inputs; j++)
            if (op->edge[j].wanted)
                DLC_TRY(plan_edge(net, op, j));
    }
    return DLC_OK;
}

/* Plans memory for the parameters' gradients of a frozen layer that cannot leave them
 * out. Nobody reads them. */
static dlc_status plan_discarded(dlc_net *net, net_op *op) {
    int splits = (op->caps & DLC_LAYER_SPLIT_BACKWARD) != 0;
    return op->frozen && !splits
               ? dlc_net_gradient_buffer_add(net, op, &op->discarded_buffer)
               : DLC_OK;
}

static dlc_status plan_op(dlc_net *net, net_op *op) {
    for (int32_t j = 0; j < op->memory.outputs; j++)
        DLC_TRY(plan_output(net, op, j));
    DLC_TRY(plan_workspace(net, op));
    DLC_TRY(plan_scratch(net, op, NET_RUN_FORWARD, op->index));
    if (!op->runs_backward)
        return DLC_OK;
    DLC_TRY(plan_discarded(net, op));
    return plan_scratch(net, op, NET_RUN_BACKWARD, net_backward_step(net, op));
}

dlc_status dlc_net_pass_memory(dlc_net *net) {
    DLC_TRY(dlc_net_find_reads(net));
    DLC_TRY(plan_batch(net));
    for (int32_t i = 0; i < net->ops; i++)
        if (!net->op[i]->fused_into)
            DLC_TRY(plan_op(net, net->op[i]));
    return plan_gradients(net);
}
