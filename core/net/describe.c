/* Describes a net for reports: one row per operation, with the work in it. Used by
 * `dlcore check`, `time` and `plan`. */
#include "net/ir.h"

/* ---- The work -------------------------------------------------------------------- */

static uint64_t tensor_bytes(const dlc_net *net, int32_t tensor) {
    return dlc_tensor_bytes(&net->tensor[tensor].tensor);
}

/* The bytes of the inputs and outputs whose bits are set in `in` and `out`. */
static uint64_t activation_bytes(const dlc_net *net, const net_op *op, uint64_t in,
                                 uint64_t out) {
    uint64_t bytes = 0;
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (in >> j & 1)
            bytes += tensor_bytes(net, op->input[j]);
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (out >> j & 1)
            bytes += tensor_bytes(net, op->output[j]);
    return bytes;
}

static uint64_t param_bytes(const net_op *op, int no_buffers) {
    uint64_t count = 0;
    for (int32_t j = 0; j < op->memory.params; j++)
        if (!no_buffers || !(op->param[j].flags & DLC_PARAM_BUFFER))
            count += (uint64_t)op->memory.param_count[j];
    return count * sizeof(float);
}

/* The bytes of the outputs' gradients. */
static uint64_t out_diff_bytes(const dlc_net *net, const net_op *op) {
    uint64_t bytes = 0;
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (net->tensor[op->output[j]].diff_buffer != NO_BUFFER)
            bytes += tensor_bytes(net, op->output[j]);
    return bytes;
}

/* The bytes of the inputs' gradients. One that is added to another counts twice, since
 * something is read once more. */
static uint64_t in_diff_bytes(const dlc_net *net, const net_op *op) {
    uint64_t bytes = 0;
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (op->edge[j].wanted)
            bytes += tensor_bytes(net, op->input[j]) *
                     (op->edge[j].add || op->edge[j].accumulates ? 2 : 1);
    return bytes;
}

static dlc_net_work joint_backward(const dlc_net *net, const net_op *op) {
    uint32_t parts = dlc_net_backward_parts(op);
    int count = (parts & DLC_BACKWARD_DATA ? 1 : 0) +
                (parts & DLC_BACKWARD_WEIGHTS ? 1 : 0);
    dlc_net_work work = {
        .multiply_adds = count * op->shapes.multiply_adds,
        .bytes = out_diff_bytes(net, op) + in_diff_bytes(net, op) +
                 activation_bytes(net, op, op->memory.reads_in, op->memory.reads_out)};
    /* One part reads the weights, the other writes their gradients. */
    work.bytes += (uint64_t)count * param_bytes(op, 1);
    return work;
}

/* The gradients of the weights need the inputs, those of the inputs need the weights,
 * and both need the outputs if the layer reads them at all. */
static void split_backward(const dlc_net *net, const net_op *op, dlc_net_work *data,
                           dlc_net_work *param) {
    uint64_t both = out_diff_bytes(net, op) +
                    activation_bytes(net, op, 0, op->memory.reads_out) +
                    param_bytes(op, 1);
    data->multiply_adds = param->multiply_adds = op->shapes.multiply_adds;
    data->bytes = both + in_diff_bytes(net, op);
    param->bytes = both + activation_bytes(net, op, op->memory.reads_in, 0);
}

static int is_recomputed(const dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (net->tensor[op->output[j]].recompute_before)
            return 1;
    return 0;
}

static void describe_work(const dlc_net *net, const net_op *op, dlc_net_row *row) {
    if (op->fused_into)
        return;
    int times = is_recomputed(net, op) ? 2 : 1;
    uint64_t bytes = activation_bytes(net, op, UINT64_MAX, UINT64_MAX) +
                     param_bytes(op, 0);
    row->work[DLC_NET_FORWARD] = (dlc_net_work){
        .multiply_adds = times * op->shapes.multiply_adds,
        .bytes = (uint64_t)times * bytes};
    if (dlc_net_can_split_backward(op))
        split_backward(net, op, &row->work[DLC_NET_BACKWARD_DATA],
                       &row->work[DLC_NET_BACKWARD_WEIGHTS]);
    else if (op->runs_backward)
        row->work[dlc_net_backward_part(op)] = joint_backward(net, op);
}

/* ---- Rows ------------------------------------------------------------------------ */

static void describe_params(const dlc_net *net, const net_op *op, dlc_net_row *row) {
    size_t end = 0;
    for (int32_t j = 0; j < op->memory.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j].own;
        if (op->param[j].flags & DLC_PARAM_BUFFER)
            continue;
        row->parameters += dlc_shape_count(&op->param[j].shape);
        row->frozen |= op->frozen;
        if (param->set == DLC_PARAMS_ROWS || op->frozen)
            continue;
        if (end == 0 || param->offset < row->trained_begin)
            row->trained_begin = param->offset;
        if (param->offset + param->count > end)
            end = param->offset + param->count;
    }
    row->trained_count = end - row->trained_begin;
}

/* Multiplies the work of one batch chunk by the number of chunks in a pass. */
static void count_chunks(const dlc_net *net, dlc_net_row *row) {
    row->multiply_adds *= net->chunks.count;
    for (int part = 0; part < DLC_NET_PARTS; part++) {
        row->work[part].multiply_adds *= net->chunks.count;
        row->work[part].bytes *= (uint64_t)net->chunks.count;
    }
}

int32_t dlc_net_rows(const dlc_net *net) {
    return net->ops;
}

dlc_status dlc_net_row_at(const dlc_net *net, int32_t i, dlc_net_row *row) {
    if (i < 0 || i >= net->ops)
        return dlc_fail(DLC_ERR_INTERNAL, "the net has no row %d", (int)i);
    const net_op *op = net->op[i];
    *row = (dlc_net_row){.name = op->name,
                         .output = op->out[0].shape,
                         .multiply_adds = op->shapes.multiply_adds};
    op->ops->describe(net, op, row);
    for (int32_t j = 0; j < op->memory.inputs; j++)
        row->added += op->edge[j].wanted && op->edge[j].add;
    describe_params(net, op, row);
    describe_work(net, op, row);
    if (net->tensor[op->output[0]].in_chunk)
        count_chunks(net, row);
    if (op->fused_into)
        row->fused_into = op->fused_into->name;
    return DLC_OK;
}

/* ---- Outlines -------------------------------------------------------------------- */

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
        const net_op *op = net->op[i];
        for (int32_t j = 0; j < op->memory.inputs; j++)
            if (op->node >= first && op->node < end && op->edge[j].wanted &&
                op->input[j] == producer->output[output])
                return 1;
    }
    return 0;
}
