/* The pass `infer`: every operation sets the shapes of its outputs from those of its
 * inputs; layers are created for that. In an outline a layer whose shapes do not fit is
 * reported and left out, with all that read it. */
#include "net/ops.h"
#include "net/passes.h"

/* Is there still a producer of everything that it reads? */
static int has_inputs(const dlc_net *net, const net_op *op) {
    for (int32_t i = 0; i < op->memory.inputs; i++) {
        const net_tensor *tensor = &net->tensor[op->input[i]];
        if (!tensor->producer && !tensor->is_inferred)
            return 0;
    }
    return 1;
}

static int can_infer(const dlc_net *net, const net_op *op) {
    return net->args.device || (DLC_HAS(op->family, infers_without_device) &&
                                op->family->infers_without_device);
}

/* Infers a layer of an outline; `*fits` is 0 if it has to be left out. */
static dlc_status try_layer(dlc_net *net, net_op *op, int *fits) {
    *fits = has_inputs(net, op) && can_infer(net, op);
    if (!*fits)
        return DLC_OK;
    DLC_TRY(dlc_net_open_family(net, op)); /* no mistake of this layer */
    dlc_status status = op->ops->infer(net, op);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    net->args.on_misfit(net->args.misfit_context, op->node, status);
    *fits = 0;
    return DLC_OK;
}

static dlc_status infer_what_fits(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        int fits = 0;
        DLC_TRY(try_layer(net, net->op[i], &fits));
        if (!fits)
            dlc_net_op_remove(net, net->op[i]);
    }
    dlc_net_ops_close_up(net);
    return DLC_OK;
}

dlc_status dlc_net_pass_infer(dlc_net *net) {
    if (net->args.on_misfit)
        return infer_what_fits(net);
    for (int32_t i = 0; i < net->ops; i++)
        DLC_TRY(net->op[i]->ops->infer(net, net->op[i]));
    return DLC_OK;
}
