/* The pass `layouts`: each operation is shown the layouts of its inputs and says which
 * it wants; if the two differ, a reorder by the operation's family is inserted. A
 * tensor in a private layout is converted to plain, by its family, for readers of
 * another one.
 */
#include "net/ops.h"
#include "net/passes.h"

/* Can the operation not read the tensor, whatever it wants: for it is in the layout of
 * another family, of a type or of a shape that it does not support? */
static int must_be_plain(const net_op *op, const net_tensor *tensor) {
    return tensor->family && !op->ops->reads_any_layout &&
           (tensor->family != op->family || !net_knows_type(op, &tensor->tensor) ||
            (op->reads_plain && tensor->tensor.layout));
}

/* Offers an operation its input as it is, or converted to plain. */
static dlc_status offer_input(dlc_net *net, net_op *op, int32_t i) {
    const net_tensor *tensor = &net->tensor[op->input[i]];
    if (must_be_plain(op, tensor)) {
        dlc_tensor plain = tensor->tensor;
        plain.layout = NULL;
        plain.bytes = 0;
        if (!net_knows_type(op, &tensor->tensor))
            plain.dtype = DLC_F32;
        DLC_TRY(
            dlc_net_reorder_input(net, op, i, tensor->family, tensor->context, &plain));
    }
    op->in[i] = net->tensor[op->input[i]].tensor;
    return DLC_OK;
}

static dlc_status agree(dlc_net *net, net_op *op) {
    DLC_TRY(net_note_set_up(net, op)); /* some compile kernels, which takes time */
    for (int32_t i = 0; i < op->memory.inputs; i++)
        DLC_TRY(offer_input(net, op, i));
    if (op->ops->prepare)
        DLC_TRY(op->ops->prepare(net, op));
    for (int32_t i = 0; i < op->memory.inputs; i++)
        if (!dlc_net_same_layout(op->family, &net->tensor[op->input[i]].tensor,
                                 &op->in[i]))
            DLC_TRY(
                dlc_net_reorder_input(net, op, i, op->family, op->context, &op->in[i]));
    for (int32_t i = 0; i < op->memory.outputs; i++) {
        net_tensor *out = &net->tensor[op->output[i]];
        out->tensor.layout = op->out[i].layout;
        out->tensor.bytes = op->out[i].bytes;
        out->tensor.dtype = op->out[i].dtype;
        dlc_net_own_layout(out, op->family, op->context);
    }
    return DLC_OK;
}

dlc_status dlc_net_pass_layouts(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = net->op[i];
        if (!op->fused_into)
            DLC_TRY(agree(net, op));
        i = op->index;
    }
    return DLC_OK;
}
