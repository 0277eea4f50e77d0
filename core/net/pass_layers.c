/* The passes that ask layers: infer, fuse and layouts. */
#include "base/log.h"
#include "base/memory.h"
#include "net/ops.h"

/* ---- The pass `infer` ------------------------------------------------------------ */

/* Every operation infers the shapes of its outputs from its inputs' shapes; layers are
 * created to answer that. In an outline a layer whose shapes do not fit is reported and
 * left out, with all that read it. */

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

/* ---- The pass `fuse` ------------------------------------------------------------- */

/* A layer takes over its only reader, an elementwise layer or a sum of two, so that a
 * tensor need not be written and read again. */

/* The readers of a tensor, while layers take over others: how many there are, and the
 * sum of their indices, which is the index of an only one. */
typedef struct readers {
    int32_t count;
    int64_t sum;
} readers;

static void count_reader(readers *of, const net_op *op, int32_t tensor, int by) {
    of[tensor].count += by;
    of[tensor].sum += by * (int64_t)op->index;
}

static void count_inputs(readers *of, const net_op *op, int by) {
    for (int32_t j = 0; j < op->memory.inputs; j++)
        count_reader(of, op, op->input[j], by);
}

/* The only reader of a tensor; NULL if there are none or several. */
static net_op *only_reader(const dlc_net *net, const readers *of, int32_t tensor) {
    return of[tensor].count == 1 ? net->op[of[tensor].sum] : NULL;
}

/* Is it an elementwise layer without parameters, by its capability bits and its shapes?
 */
static int may_be_fused(const net_op *op) {
    int inputs = op->caps & DLC_LAYER_POINTWISE ? 1
                 : op->caps & DLC_LAYER_BINARY  ? 2
                                                : 0;
    return op->memory.inputs == inputs && op->memory.outputs == 1 &&
           op->memory.params == 0;
}

/* The input of a binary layer that is not the output of operation `op`; NO_TENSOR if it
 * is computed later than that operation. */
static int32_t other_input(const dlc_net *net, const net_op *binary, const net_op *op) {
    int32_t other = binary->input[binary->input[0] == op->output[0]];
    const net_op *producer = net->tensor[other].producer;
    return !producer || producer->index < op->index ? other : NO_TENSOR;
}

static void take_over(dlc_net *net, readers *of, net_op *op, net_op *next,
                      int32_t other) {
    count_inputs(of, next, -1);
    if (other != NO_TENSOR) {
        count_reader(of, op, other, 1);
        op->input[op->memory.inputs] = other;
        op->in[op->memory.inputs++] = net->tensor[other].tensor;
    }
    next->fused_into = op;
    op->output[0] = next->output[0];
    op->out[0] = next->out[0];
    net->tensor[op->output[0]].producer = op;
    dlc_debug("layer '%s' is fused into '%s'", next->name, op->name);
}

/* Fuses the layers that follow into this one, for as long as it accepts them. */
static dlc_status fuse_followers(dlc_net *net, readers *of, net_op *op) {
    int has_binary = 0;
    while (op->memory.outputs == 1) {
        net_op *next = only_reader(net, of, op->output[0]);
        if (!next || !may_be_fused(next))
            return DLC_OK;
        int is_binary = next->memory.inputs == 2;
        int32_t other = is_binary ? other_input(net, next, op) : NO_TENSOR;
        if (is_binary && (other == NO_TENSOR || has_binary))
            return DLC_OK;
        dlc_status status = op->ops->fuse(op, next);
        if (status == DLC_ERR_UNSUPPORTED)
            return DLC_OK;
        if (status != DLC_OK)
            return dlc_net_blame(op, NULL, status);
        has_binary |= is_binary;
        take_over(net, of, op, next, other);
    }
    return DLC_OK;
}

dlc_status dlc_net_pass_fuse(dlc_net *net) {
    readers *of = dlc_alloc((size_t)net->tensors, sizeof *of);
    dlc_status status = of ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; of && i < net->ops; i++)
        count_inputs(of, net->op[i], 1);
    for (int32_t i = 0; status == DLC_OK && i < net->ops; i++)
        if (!net->op[i]->fused_into && net->op[i]->ops->fuse)
            status = fuse_followers(net, of, net->op[i]);
    dlc_free(of);
    return status;
}

/* ---- The pass `layouts` ---------------------------------------------------------- */

/* Each operation is shown the layouts of its inputs and says which it wants; if the two
 * differ, a reorder by the operation's family is inserted. A tensor in a private layout
 * is converted to plain, by its family, for readers of another one. */

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

static dlc_status agree_on_layouts(dlc_net *net, net_op *op) {
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
            DLC_TRY(agree_on_layouts(net, op));
        i = op->index;
    }
    return DLC_OK;
}
