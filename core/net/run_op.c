/* Runs one operation of a net. */
#include "net/run_op.h"

#include "base/clock.h"

void dlc_net_note_activity(const dlc_net *net, const char *phase, const net_op *op) {
    if (net->args.on_activity)
        (void)net->args.on_activity(net->args.activity_context, phase, op->name);
}

/* Marks an operation for the device's profiler. */
static void begin_range(const dlc_net *net, const net_op *op) {
    const dlc_device_ops *ops = net->args.device_ops;
    if (DLC_CAN(ops, range_begin))
        ops->range_begin(net->args.device, op->name);
}

static void end_range(const dlc_net *net) {
    const dlc_device_ops *ops = net->args.device_ops;
    if (DLC_CAN(ops, range_end))
        ops->range_end(net->args.device);
}

static dlc_status named(dlc_status status, const net_op *op, const char *phase) {
    return status == DLC_OK ? DLC_OK : dlc_net_blame(op, phase, status);
}

/* ---- Timing ---------------------------------------------------------------------- */

static uint64_t begin_part(const dlc_net *net) {
    return net->timed ? dlc_now_ns() : 0;
}

static dlc_status end_part(const dlc_net *net, net_op *op, dlc_net_part part,
                           uint64_t start) {
    if (!net->timed)
        return DLC_OK;
    DLC_TRY(dlc_net_sync(net));
    op->ns[part] += dlc_now_ns() - start;
    return DLC_OK;
}

/* ---- Forward --------------------------------------------------------------------- */

/* The set and the range of its arena that hold an operation's weights, all of which are
 * of one set; the range is empty if it has none. */
static int32_t weights_of(const dlc_net *net, const net_op *op, size_t *begin,
                          size_t *end) {
    int32_t set = DLC_PARAMS_WHOLE;
    *begin = *end = 0;
    for (int32_t j = 0; j < op->memory.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j].own;
        if (param->is_buffer)
            continue;
        set = param->set;
        if (*end == 0 || param->offset < *begin)
            *begin = param->offset;
        if (param->offset + param->count > *end)
            *end = param->offset + param->count;
    }
    return set;
}

static dlc_status wait_for_weights(const dlc_net *net, const net_op *op) {
    size_t begin = 0, end = 0;
    if (!net->args.wait_for_weights)
        return DLC_OK;
    int32_t set = weights_of(net, op, &begin, &end);
    return end > begin
               ? net->args.wait_for_weights(net->args.weights_context, set, begin, end)
               : DLC_OK;
}

/* Without samples a rank only runs what needs all ranks of the group. */
static int has_no_part(const dlc_net *net, const net_op *op) {
    return net->args.empty && !op->in_group;
}

dlc_status dlc_net_forward_op(dlc_net *net, net_op *op) {
    if (op->fused_into)
        return DLC_OK;
    DLC_TRY(wait_for_weights(net, op)); /* also without samples: ranks stay in step */
    if (has_no_part(net, op))
        return DLC_OK;
    dlc_net_note_activity(net, op->in_group ? "synchronized forward" : "forward", op);
    uint64_t start = begin_part(net);
    begin_range(net, op);
    dlc_status status = op->ops->forward(net, op, NET_RUN_FORWARD);
    end_range(net);
    DLC_TRY(named(status, op, "forward"));
    return end_part(net, op, DLC_NET_FORWARD, start);
}

/* ---- Recomputing ----------------------------------------------------------------- */

/* Recomputes a tensor, and first its inputs if they have to be recomputed, too. */
static dlc_status recompute(const dlc_net *net, int32_t tensor) {
    net_op *op = net->tensor[tensor].producer;
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_tensor *from = &net->tensor[op->input[j]];
        if (from->recompute_before == net->tensor[tensor].recompute_before)
            DLC_TRY(recompute(net, op->input[j]));
    }
    uint64_t start = begin_part(net);
    DLC_TRY(named(op->ops->forward(net, op, NET_RUN_RECOMPUTE), op, "forward"));
    return end_part(net, op, DLC_NET_FORWARD, start);
}

/* Recomputes the tensors that were not kept, if backward of the operation is the first
 * to read them. */
static dlc_status recompute_for(const dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (net->tensor[op->input[j]].recompute_before == op)
            DLC_TRY(recompute(net, op->input[j]));
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (net->tensor[op->output[j]].recompute_before == op)
            DLC_TRY(recompute(net, op->output[j]));
    return DLC_OK;
}

/* ---- Backward -------------------------------------------------------------------- */

static dlc_status add_part(const dlc_net *net, const dlc_tensor *tensor,
                           const void *part, void *diff) {
    const dlc_device_ops *ops = net->args.device_ops;
    dlc_device *device = net->args.device;
    dlc_queue *queue = net->args.queue;
    size_t count = dlc_tensor_bytes(tensor) / dlc_dtype_bytes(tensor->dtype);
    if (!net_is_16_bit(tensor))
        return ops->add(device, queue, count, part, diff);
    if (tensor->dtype == DLC_BF16 && DLC_CAN(ops, add_bf16))
        return ops->add_bf16(device, queue, count, part, diff);
    if (tensor->dtype == DLC_F16 && DLC_CAN(ops, add_f16))
        return ops->add_f16(device, queue, count, part, diff);
    return dlc_fail(DLC_ERR_UNSUPPORTED,
                    "device '%s' cannot add %s; set [train] precision = float32",
                    net->args.device_feature->name,
                    tensor->dtype == DLC_BF16 ? "bfloat16" : "half precision");
}

/* Adds up the gradients of a tensor that several operations read. */
static dlc_status add_parts(const dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_edge *edge = &op->edge[j];
        if (!edge->wanted || !edge->add || net->args.empty)
            continue;
        const net_tensor *tensor = &net->tensor[op->input[j]];
        DLC_TRY(add_part(net, &tensor->tensor, edge->target, tensor->diff));
    }
    return DLC_OK;
}

/* The gradients of the weights come first, since those of the data may overwrite what
 * they are computed from. */
static dlc_status run_parts(const dlc_net *net, net_op *op) {
    uint32_t parts = op->frozen ? DLC_BACKWARD_DATA
                                : DLC_BACKWARD_DATA | DLC_BACKWARD_WEIGHTS;
    if (net->timed && dlc_net_can_split_backward(op)) {
        uint64_t start = begin_part(net);
        DLC_TRY(op->ops->backward(net, op, DLC_BACKWARD_WEIGHTS));
        DLC_TRY(end_part(net, op, DLC_NET_BACKWARD_WEIGHTS, start));
        parts = DLC_BACKWARD_DATA;
    }
    uint64_t start = begin_part(net);
    DLC_TRY(op->ops->backward(net, op, parts));
    DLC_TRY(add_parts(net, op));
    return end_part(net, op, dlc_net_backward_part(op), start);
}

dlc_status dlc_net_backward_op(dlc_net *net, net_op *op) {
    if (!op->runs_backward || has_no_part(net, op))
        return DLC_OK;
    dlc_net_note_activity(net, op->in_group ? "synchronized backward" : "backward", op);
    if (!net->args.empty)
        DLC_TRY(recompute_for(net, op));
    begin_range(net, op);
    dlc_status status = run_parts(net, op);
    end_range(net);
    return named(status, op, "backward");
}

dlc_status dlc_net_gradients_done(const dlc_net *net, const net_op *op,
                                  const net_done *done) {
    size_t begin = 0, end = 0;
    if (!op->runs_backward || !done->call)
        return DLC_OK;
    int32_t set = weights_of(net, op, &begin, &end);
    return end ? done->call(done->context, set, end) : DLC_OK;
}
