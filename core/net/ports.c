/* A net that is a part of the graph: tensors that come in from outside lie where the
 * pass says; what goes out is made plain by an operation of its own, the last ones of
 * forward, so that in backward the gradient from outside is the first to be there and
 * takes part in the plan like any other. And several passes under way at once, each in
 * memory of its own. */
#include "net/internal.h"

/* ---- In ---------------------------------------------------------------------- */

dlc_status dlc_net_add_ports_in(dlc_net *net) {
    for (int32_t i = 0; i < net->args.ports_in; i++) {
        const dlc_net_port *port = &net->args.port_in[i];
        dlc_tensor tensor = {.dtype = port->dtype, .shape = port->shape};
        int32_t added = dlc_net_tensor_add(net, &tensor, NO_OP);
        if (added < 0)
            return added;
        net->tensor[added].is_port = 1;
        net->tensor[added].wants_gradient = port->gradient &&
                                            net->args.phase == DLC_PHASE_TRAIN;
    }
    return DLC_OK;
}

/* They stand behind the batch. */
static net_tensor *tensor_in(const dlc_net *net, int32_t i) {
    return &net->tensor[TENSOR_LABEL + 1 + i];
}

int32_t dlc_net_port_tensor(const dlc_net *net, dlc_graph_input input) {
    for (int32_t i = 0; i < net->args.ports_in; i++)
        if (net->args.port_in[i].layer == input.layer &&
            net->args.port_in[i].output == input.output)
            return TENSOR_LABEL + 1 + i;
    return NO_OP;
}

/* ---- Out --------------------------------------------------------------------- */

dlc_status dlc_net_add_port_op(dlc_net *net, net_op *op, const dlc_net_port *port) {
    DLC_TRY(dlc_net_allocate_op(op, 1));
    const net_op *producer = dlc_net_op_of_node(net, port->layer);
    op->node = NO_OP;
    op->port = port;
    op->name = net->args.graph->layer[port->layer].name;
    if (!producer || port->output >= producer->plan.outputs)
        return dlc_fail(DLC_ERR_INTERNAL, "layer '%s' has no output to send", op->name);
    op->input[0] = producer->output[port->output];
    op->in[0] = net->tensor[op->input[0]].tensor;
    op->out[0] = (dlc_tensor){.dtype = port->dtype, .shape = port->shape};
    int32_t added = dlc_net_tensor_add(net, &op->out[0], (int32_t)(op - net->op));
    if (added < 0)
        return added;
    op->output[0] = added;
    return DLC_OK;
}

/* What has the layout or type of a family is made plain by it; the rest is copied. */
dlc_status dlc_net_prepare_port(dlc_net *net, net_op *op) {
    const net_tensor *from = &net->tensor[op->input[0]];
    op->in[0] = from->tensor;
    if (!from->family)
        return DLC_OK;
    op->family = from->family;
    op->context = from->context;
    DLC_TRY(
        op->family->reorder_create(op->context, &op->in[0], &op->out[0], &op->there));
    return op->runs_backward ? op->family->reorder_create(op->context, &op->out[0],
                                                          &op->in[0], &op->back)
                             : DLC_OK;
}

dlc_status dlc_net_run_port(const dlc_net *net, dlc_reorder *reorder, const net_op *op,
                            const void *src, void *dst) {
    const dlc_net_args *args = &net->args;
    if (reorder)
        return op->family->reorder_run(reorder, src, dst);
    return args->device_ops->copy(args->device, args->queue, dst, src,
                                  dlc_tensor_bytes(&op->out[0]));
}

/* ---- Passes ------------------------------------------------------------------ */

static void point_ports(dlc_net *net, const dlc_net_pass *pass) {
    for (int32_t i = 0; i < net->args.ports_in; i++) {
        net_tensor *tensor = tensor_in(net, i);
        tensor->data = pass->in[i];
        tensor->diff = pass->in_diff ? pass->in_diff[i] : NULL;
    }
    int32_t out = 0;
    for (int32_t i = 0; i < net->ops; i++) {
        if (!net->op[i].port)
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

/* Buffers lie alike in every lane. */
static void change_lane(dlc_net *net, int32_t lane) {
    size_t at = (size_t)lane * dlc_net_lane_bytes(net);
    ptrdiff_t by = (ptrdiff_t)at - (ptrdiff_t)net->lane_at;
    net->lane_at = at;
    for (int32_t i = 0; by != 0 && i < net->tensors; i++) {
        net_tensor *tensor = &net->tensor[i];
        if (tensor->data_buffer >= 0)
            tensor->data = moved(tensor->data, by);
        if (tensor->diff_buffer >= 0)
            tensor->diff = moved(tensor->diff, by);
        if (tensor->again_buffer >= 0)
            tensor->again = moved(tensor->again, by);
    }
}

void dlc_net_enter(dlc_net *net, const dlc_net_pass *pass) {
    change_lane(net, pass->lane);
    point_ports(net, pass);
    dlc_net_point(net);
    for (int32_t i = 0; i < net->ops; i++) {
        net->op[i].run.iteration = pass->iteration;
        net->op[i].run.sample = pass->sample;
    }
}

void dlc_net_write_gradients(dlc_net *net, float *arena) {
    net->gradients_into = arena;
}

/* ---- Outlines ---------------------------------------------------------------- */

/* Plain, as it goes from net to net. */
static dlc_dtype plain_type(const dlc_tensor *tensor) {
    return net_is_16_bit(tensor) ? DLC_F32 : tensor->dtype;
}

int dlc_net_output(const dlc_net *net, int32_t layer, int32_t output,
                   dlc_net_port *port) {
    const net_op *op = dlc_net_op_of_node(net, layer);
    if (!op || output >= op->plan.outputs)
        return 0;
    const net_tensor *tensor = &net->tensor[op->output[output]];
    *port = (dlc_net_port){.layer = layer,
                           .output = output,
                           .dtype = plain_type(&tensor->tensor),
                           .shape = tensor->tensor.shape};
    return 1;
}

int dlc_net_is_wanted(const dlc_net *net, int32_t layer, int32_t output, int32_t first,
                      int32_t end) {
    const net_op *producer = dlc_net_op_of_node(net, layer);
    for (int32_t i = 0; producer && i < net->ops; i++) {
        const net_op *op = &net->op[i];
        for (int32_t j = 0; j < op->plan.inputs; j++)
            if (op->node >= first && op->node < end && op->edge[j].wanted &&
                op->input[j] == producer->output[output])
                return 1;
    }
    return 0;
}
