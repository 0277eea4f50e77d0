/* A stage boundary: sends a tensor to another pipeline stage, converted to plain, and
 * takes its gradient from there. Such operations are the last of forward, so that in
 * backward the gradient that comes from outside is the first, and is planned like any
 * other. The memory on the outside is that of the pass. */
#include "net/ops.h"

typedef struct boundary_op {
    net_conversion conversion; /* first */
    const dlc_net_boundary *boundary;
} boundary_op;

static dlc_status infer(dlc_net *net, net_op *op) {
    const dlc_net_boundary *boundary = ((boundary_op *)op)->boundary;
    if (!net->tensor[op->input[0]].is_inferred)
        return dlc_fail(DLC_ERR_INTERNAL, "layer '%s' has no output to send", op->name);
    op->in[0] = net->tensor[op->input[0]].tensor;
    op->out[0] = (dlc_tensor){.dtype = boundary->dtype, .shape = boundary->shape};
    op->has_backward = 1;
    op->reaches_loss = boundary->gradient;
    return DLC_OK;
}

/* A tensor in a family's layout or type is converted by it; any other one is copied. */
static dlc_status prepare(dlc_net *net, net_op *op) {
    const net_tensor *from = &net->tensor[op->input[0]];
    if (!from->family)
        return DLC_OK;
    op->family = from->family;
    op->context = from->context;
    return dlc_net_conversion_make(op, op->runs_backward);
}

static const dlc_net_op_ops BOUNDARY = {.reads_any_layout = 1,
                                        .infer = infer,
                                        .prepare = prepare,
                                        .forward = dlc_net_conversion_forward,
                                        .backward = dlc_net_conversion_backward,
                                        .describe = dlc_net_describe_inserted,
                                        .free = dlc_net_conversion_free};

dlc_status dlc_net_add_boundary(dlc_net *net, int32_t i, int32_t tensor) {
    const dlc_net_boundary *boundary = &net->args.boundary_out[i];
    net_op *op = dlc_net_op_insert(net, net->ops, &BOUNDARY, sizeof(boundary_op), 1);
    if (!op)
        return DLC_ERR_NOMEM;
    ((boundary_op *)op)->boundary = boundary;
    op->name = net->args.graph->layer[boundary->layer].name;
    op->input[0] = tensor;
    op->output[0] = net_boundary_out(net, i);
    net->tensor[op->output[0]].producer = op;
    return DLC_OK;
}
