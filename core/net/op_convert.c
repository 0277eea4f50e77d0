/* Operations that convert a tensor: reorders, inserted where a reader wants another
 * layout or type than the writer gives, and stage boundaries, which send a tensor to
 * another pipeline stage in plain form and take its gradient from there. The family
 * that knows both layouts converts, and converts the gradient back. */
#include "net/ops.h"
#include "plugin/answers.h"

/* ---- Conversions ----------------------------------------------------------------- */

/* An operation whose output is its input, converted by its family: there and, if its
 * backward runs, back. What is NULL is copied instead. */
typedef struct net_conversion {
    net_op op;                       /* first */
    dlc_reorder *forward, *backward; /* own; the family's */
} net_conversion;

/* Creates the family's reorders between op->in[0] and op->out[0]. */
static dlc_status make_conversion(net_op *op, int backward) {
    net_conversion *made = (net_conversion *)op;
    DLC_TRY(DLC_ASK(op->family, "reorder_create",
                    op->family->reorder_create(op->context, &op->in[0], &op->out[0],
                                               &made->forward)));
    return backward ? DLC_ASK(op->family, "reorder_create",
                              op->family->reorder_create(op->context, &op->out[0],
                                                         &op->in[0], &made->backward))
                    : DLC_OK;
}

static dlc_status convert_tensor(const dlc_net *net, const net_op *op,
                                 dlc_reorder *reorder, const void *src, void *dst) {
    if (reorder)
        return DLC_ASK(op->family, "reorder_run",
                       op->family->reorder_run(reorder, src, dst));
    return dlc_net_copy(net, dst, src, dlc_tensor_bytes(&op->out[0]));
}

static dlc_status conversion_forward(const dlc_net *net, net_op *op, net_run kind) {
    (void)kind;
    return convert_tensor(net, op, ((net_conversion *)op)->forward,
                          net->tensor[op->input[0]].data,
                          net->tensor[op->output[0]].data);
}

static dlc_status conversion_backward(const dlc_net *net, net_op *op, uint32_t parts) {
    (void)parts;
    return convert_tensor(net, op, ((net_conversion *)op)->backward,
                          net->tensor[op->output[0]].diff, op->edge[0].target);
}

static void conversion_free(net_op *op) {
    net_conversion *conversion = (net_conversion *)op;
    if (!op->family)
        return;
    op->family->reorder_destroy(conversion->forward);
    op->family->reorder_destroy(conversion->backward);
}

/* ---- Reorders -------------------------------------------------------------------- */

static const dlc_net_op_ops REORDER = {.forward = conversion_forward,
                                       .backward = conversion_backward,
                                       .describe = dlc_net_describe_inserted,
                                       .free = conversion_free};

int dlc_net_same_layout(const dlc_family *family, const dlc_tensor *a,
                        const dlc_tensor *b) {
    return a->dtype == b->dtype &&
           (a->layout == b->layout || family->same_layout(a, b));
}

void dlc_net_own_layout(net_tensor *tensor, const dlc_family *family, void *context) {
    int plain = !tensor->tensor.layout && !net_is_16_bit(&tensor->tensor);
    tensor->family = plain ? NULL : family;
    tensor->context = context;
}

/* The output of an existing reorder of `tensor` to `wanted`, or NO_TENSOR. */
static int32_t find_reordered(const dlc_net *net, int32_t tensor,
                              const dlc_family *family, const dlc_tensor *wanted) {
    int32_t at = net->tensor[tensor].converted;
    for (; at != NO_TENSOR; at = net->tensor[at].converted_before) {
        const net_op *op = net->tensor[at].producer;
        if (op->ops == &REORDER && op->family == family &&
            dlc_net_same_layout(family, &net->tensor[at].tensor, wanted))
            break;
    }
    return at;
}

/* The new tensor differs from the old one in its layout and type alone. */
static dlc_status add_reordered(dlc_net *net, net_op *op) {
    DLC_TRY(dlc_net_output_add(net, op, 0));
    const net_tensor *from = &net->tensor[op->input[0]];
    net_tensor *to = &net->tensor[op->output[0]];
    dlc_net_set_shape(net, op->output[0], &op->out[0]);
    to->wants_gradient = from->wants_gradient;
    to->placement = from->placement;
    to->channels = from->channels;
    to->in_chunk = from->in_chunk;
    dlc_net_own_layout(to, op->family, op->context);
    return DLC_OK;
}

static dlc_status make_reorder(dlc_net *net, net_op *op) {
    int backward = net->tensor[op->input[0]].wants_gradient && net_is_training(net);
    DLC_TRY(make_conversion(op, backward));
    op->runs_backward = op->reaches_loss = op->edge[0].wanted = backward;
    net->reorders++;
    return add_reordered(net, op);
}

dlc_status dlc_net_reorder_input(dlc_net *net, net_op *reader, int32_t i,
                                 const dlc_family *family, void *context,
                                 const dlc_tensor *wanted) {
    int32_t tensor = reader->input[i];
    int32_t found = find_reordered(net, tensor, family, wanted);
    if (found == NO_TENSOR) {
        net_op *op = dlc_net_op_insert(net, reader->index, &REORDER,
                                       sizeof(net_conversion), 1);
        if (!op)
            return DLC_ERR_NOMEM;
        op->name = "reorder";
        op->family = family;
        op->context = context;
        op->input[0] = tensor;
        op->in[0] = net->tensor[tensor].tensor;
        op->out[0] = *wanted;
        dlc_status status = make_reorder(net, op);
        if (status != DLC_OK)
            return dlc_net_blame(reader, "reordering its input", status);
        found = op->output[0];
        dlc_net_note_conversion(net, tensor, found);
    }
    reader->input[i] = found;
    return DLC_OK;
}

/* ---- Stage boundaries ------------------------------------------------------------ */

/* These are the last operations of forward, so that in backward the gradient that comes
 * from outside is the first, and is planned like any other. The memory on the outside
 * belongs to the micro-batch. */

static dlc_status infer_boundary(dlc_net *net, net_op *op) {
    const net_tensor *from = &net->tensor[op->input[0]];
    int32_t i = op->output[0] - net_boundary_out(net, 0);
    if (!from->is_inferred)
        return dlc_fail(DLC_ERR_INTERNAL, "layer '%s' has no output to send", op->name);
    op->in[0] = from->tensor;
    op->out[0] = net->tensor[op->output[0]].tensor;
    op->has_backward = 1;
    op->reaches_loss = net->args.boundary_out[i].gradient;
    return DLC_OK;
}

/* A tensor in a family's layout or type is converted by it; any other one is copied. */
static dlc_status prepare_boundary(dlc_net *net, net_op *op) {
    const net_tensor *from = &net->tensor[op->input[0]];
    if (!from->family)
        return DLC_OK;
    op->family = from->family;
    op->context = from->context;
    return make_conversion(op, op->runs_backward);
}

static const dlc_net_op_ops BOUNDARY = {.reads_any_layout = 1,
                                        .infer = infer_boundary,
                                        .prepare = prepare_boundary,
                                        .forward = conversion_forward,
                                        .backward = conversion_backward,
                                        .describe = dlc_net_describe_inserted,
                                        .free = conversion_free};

dlc_status dlc_net_add_boundary(dlc_net *net, int32_t i, int32_t tensor) {
    net_op *op = dlc_net_op_insert(net, net->ops, &BOUNDARY, sizeof(net_conversion), 1);
    if (!op)
        return DLC_ERR_NOMEM;
    op->name = net->args.graph->layer[net->args.boundary_out[i].layer].name;
    op->input[0] = tensor;
    op->output[0] = net_boundary_out(net, i);
    net->tensor[op->output[0]].producer = op;
    return DLC_OK;
}
