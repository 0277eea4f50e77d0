/* A net for people: one row an operation, with the work that is in it. */
#include "net/portions.h"

#include <string.h>

/* ---- The work -------------------------------------------------------------------- */

static int is_trained(const net_op *op, int32_t param) {
    return !(op->param[param].flags & DLC_PARAM_BUFFER);
}

uint32_t dlc_net_halves(const net_op *op) {
    uint32_t halves = 0;
    if (!op->runs_backward)
        return 0;
    for (int32_t j = 0; j < op->plan.inputs; j++)
        if (op->edge[j].wanted)
            halves |= DLC_PART_DATA;
    for (int32_t j = 0; j < op->plan.params; j++)
        if (is_trained(op, j))
            halves |= DLC_PART_PARAM;
    return halves;
}

int dlc_net_can_part(const net_op *op) {
    return op->feature && (op->feature->caps & DLC_LAYER_PARTS) != 0 &&
           dlc_net_halves(op) == (DLC_PART_DATA | DLC_PART_PARAM);
}

dlc_net_part dlc_net_whole_part(const net_op *op) {
    return dlc_net_halves(op) == DLC_PART_PARAM ? DLC_NET_BACKWARD_PARAM
                                                : DLC_NET_BACKWARD_DATA;
}

static uint64_t bytes_of(const dlc_net *net, int32_t tensor) {
    return dlc_tensor_bytes(&net->tensor[tensor].tensor);
}

/* Inputs and outputs of which the bit is set in `in` and `out`. */
static uint64_t activation_bytes(const dlc_net *net, const net_op *op, uint64_t in,
                                 uint64_t out) {
    uint64_t bytes = 0;
    for (int32_t j = 0; j < op->plan.inputs; j++)
        if (in >> j & 1)
            bytes += bytes_of(net, op->input[j]);
    for (int32_t j = 0; j < op->plan.outputs; j++)
        if (out >> j & 1)
            bytes += bytes_of(net, op->output[j]);
    return bytes;
}

static uint64_t param_bytes(const net_op *op, int trained_only) {
    uint64_t count = 0;
    for (int32_t j = 0; j < op->plan.params; j++)
        if (!trained_only || is_trained(op, j))
            count += (uint64_t)op->param[j].count;
    return count * sizeof(float);
}

/* The gradients that come in, out of the tensors that have one. */
static uint64_t out_diff_bytes(const dlc_net *net, const net_op *op) {
    uint64_t bytes = 0;
    for (int32_t j = 0; j < op->plan.outputs; j++)
        if (net->tensor[op->output[j]].diff_buffer != NO_BUFFER)
            bytes += bytes_of(net, op->output[j]);
    return bytes;
}

/* The gradients that go out; one that is added to another's is read once more, or the
 * other's is. */
static uint64_t in_diff_bytes(const dlc_net *net, const net_op *op) {
    uint64_t bytes = 0;
    for (int32_t j = 0; j < op->plan.inputs; j++)
        if (op->edge[j].wanted)
            bytes += bytes_of(net, op->input[j]) *
                     (op->edge[j].add || op->edge[j].into ? 2 : 1);
    return bytes;
}

static dlc_net_work whole_backward(const dlc_net *net, const net_op *op) {
    uint32_t halves = dlc_net_halves(op);
    int count = (halves & DLC_PART_DATA ? 1 : 0) + (halves & DLC_PART_PARAM ? 1 : 0);
    dlc_net_work work = {
        .multiply_adds = count * op->plan.multiply_adds,
        .bytes = out_diff_bytes(net, op) + in_diff_bytes(net, op) +
                 activation_bytes(net, op, op->plan.reads_in, op->plan.reads_out)};
    /* The weights are read for the inputs' gradients; their own are written. */
    work.bytes += (uint64_t)count * param_bytes(op, 1);
    return work;
}

/* The weights' half needs the inputs, the data's the weights, and both what came out
 * if the layer looks at it at all. */
static void parted_backward(const dlc_net *net, const net_op *op, dlc_net_work *data,
                            dlc_net_work *param) {
    uint64_t both = out_diff_bytes(net, op) +
                    activation_bytes(net, op, 0, op->plan.reads_out) +
                    param_bytes(op, 1);
    data->multiply_adds = param->multiply_adds = op->plan.multiply_adds;
    data->bytes = both + in_diff_bytes(net, op);
    param->bytes = both + activation_bytes(net, op, op->plan.reads_in, 0);
}

static int is_made_again(const dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->plan.outputs; j++)
        if (net->tensor[op->output[j]].again_before != NO_OP)
            return 1;
    return 0;
}

static void describe_work(const dlc_net *net, const net_op *op, dlc_net_row *row) {
    if (op->absorbed_by != NO_OP)
        return;
    int times = is_made_again(net, op) ? 2 : 1;
    uint64_t bytes = activation_bytes(net, op, UINT64_MAX, UINT64_MAX) +
                     param_bytes(op, 0);
    row->work[DLC_NET_FORWARD] = (dlc_net_work){.multiply_adds = times *
                                                                 op->plan.multiply_adds,
                                                .bytes = (uint64_t)times * bytes};
    if (dlc_net_can_part(op))
        parted_backward(net, op, &row->work[DLC_NET_BACKWARD_DATA],
                        &row->work[DLC_NET_BACKWARD_PARAM]);
    else if (op->runs_backward)
        row->work[dlc_net_whole_part(op)] = whole_backward(net, op);
}

/* ---- The row --------------------------------------------------------------------- */

static const char *name_of_tensor(const dlc_net *net, int32_t tensor) {
    int32_t producer = net->tensor[tensor].producer;
    if (producer != NO_OP)
        return net->op[producer].name;
    return tensor == TENSOR_DATA ? "data" : "label";
}

static const char *first_reader(const dlc_net *net, int32_t tensor) {
    for (int32_t i = 0; i < net->ops; i++)
        for (int32_t j = 0; j < net->op[i].plan.inputs; j++)
            if (net->op[i].absorbed_by == NO_OP && net->op[i].input[j] == tensor)
                return net->op[i].name;
    return NULL;
}

static void describe_params(const dlc_net *net, const net_op *op, dlc_net_row *row) {
    size_t end = 0;
    for (int32_t j = 0; j < op->plan.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j];
        if (!is_trained(op, j))
            continue;
        row->parameters += dlc_shape_count(&op->param[j].shape);
        if (param->is_split)
            continue;
        if (end == 0 || param->offset < row->trained_begin)
            row->trained_begin = param->offset;
        if (param->offset + param->count > end)
            end = param->offset + param->count;
    }
    row->trained_count = end - row->trained_begin;
}

/* All of them make up a pass. */
static void count_portions(const dlc_net *net, dlc_net_row *row) {
    row->multiply_adds *= net->portions.count;
    for (int part = 0; part < DLC_NET_PARTS; part++) {
        row->work[part].multiply_adds *= net->portions.count;
        row->work[part].bytes *= (uint64_t)net->portions.count;
    }
}

int32_t dlc_net_rows(const dlc_net *net) {
    return net->ops;
}

dlc_status dlc_net_row_at(const dlc_net *net, int32_t i, dlc_net_row *row) {
    if (i < 0 || i >= net->ops)
        return dlc_fail(DLC_ERR_INTERNAL, "the net has no row %d", (int)i);
    const net_op *op = &net->op[i];
    *row = (dlc_net_row){.name = op->name,
                         .type = op->feature ? op->feature->name : op->name,
                         .is_reorder = !op->feature,
                         .output = op->out[0].shape,
                         .multiply_adds = op->plan.multiply_adds};
    if (row->is_reorder) {
        row->producer = name_of_tensor(net, op->input[0]);
        row->reader = first_reader(net, op->output[0]);
    }
    for (int32_t j = 0; j < op->plan.inputs; j++)
        row->added += op->edge[j].wanted && op->edge[j].add;
    describe_params(net, op, row);
    describe_work(net, op, row);
    if (dlc_net_op_in_group(net, i))
        count_portions(net, row);
    if (op->absorbed_by != NO_OP)
        row->absorbed_by = net->op[op->absorbed_by].name;
    else if (!net->args.outline && DLC_CAN(op->ops, describe))
        op->ops->describe(op->layer, row->choice, sizeof row->choice);
    return DLC_OK;
}

void dlc_net_time(dlc_net *net, int on) {
    net->timed = on;
    for (int32_t i = 0; i < net->ops; i++)
        memset(net->op[i].ns, 0, sizeof net->op[i].ns);
}

void dlc_net_seconds(const dlc_net *net, int32_t i, double seconds[DLC_NET_PARTS]) {
    for (int part = 0; part < DLC_NET_PARTS; part++)
        seconds[part] = (double)net->op[i].ns[part] * 1e-9;
}
