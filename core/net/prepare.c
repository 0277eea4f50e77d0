/* Preparing a net: each layer is shown the layouts in which its inputs come and
 * says which it wants; where the two differ, a reorder by the layer's family is put
 * in before it. A tensor in a family's own layout is made plain, by that family,
 * for readers of another one. */
#include "base/memory.h"
#include "net/internal.h"

#include <string.h>

/* The list being made: layers moved over from the old one, reorders between. */
typedef struct op_list {
    net_op *op;
    int32_t count, room;
    int32_t *moved; /* where an operation of the old list stands now */
} op_list;

static net_op *list_add(op_list *list) {
    if (list->count == list->room) {
        int32_t room = list->room * 2 + 16;
        net_op *grown = dlc_grow(list->op, (size_t)list->room, (size_t)room,
                                 sizeof *grown);
        if (!grown)
            return NULL;
        list->op = grown;
        list->room = room;
    }
    return &list->op[list->count++];
}

static int same_layout(const dlc_family *family, const dlc_tensor *a,
                       const dlc_tensor *b) {
    return a->dtype == b->dtype &&
           (a->layout == b->layout || family->same_layout(a, b));
}

/* A reorder of `tensor` to `wanted` that is there already, or NO_OP. */
static int32_t find_reordered(const dlc_net *net, const op_list *list, int32_t tensor,
                              const dlc_family *family, const dlc_tensor *wanted) {
    for (int32_t i = 0; i < list->count; i++) {
        const net_op *op = &list->op[i];
        if (!op->feature && op->input[0] == tensor && op->family == family &&
            same_layout(family, &net->tensor[op->output[0]].tensor, wanted))
            return op->output[0];
    }
    return NO_OP;
}

static dlc_status allocate_reorder(net_op *op) {
    op->in = dlc_alloc(1, sizeof *op->in);
    op->out = dlc_alloc(1, sizeof *op->out);
    op->input = dlc_alloc(1, sizeof *op->input);
    op->output = dlc_alloc(1, sizeof *op->output);
    op->edge = dlc_alloc(1, sizeof *op->edge);
    op->node = op->absorbed_by = NO_OP;
    op->workspace_buffer = op->sum_buffer = op->mean_buffer = NO_BUFFER;
    for (int i = 0; i < NET_RUNS; i++)
        op->scratch_buffer[i] = NO_BUFFER;
    op->name = "reorder";
    if (!op->in || !op->out || !op->input || !op->output || !op->edge)
        return DLC_ERR_NOMEM;
    op->plan = (dlc_layer_plan){.size = sizeof op->plan,
                                .inputs = 1,
                                .in = op->in,
                                .outputs = 1,
                                .out = op->out};
    return DLC_OK;
}

/* Whose layout, or type of element, a tensor has: who can make it plain float32. */
static void own_layout(net_tensor *tensor, const dlc_family *family, void *context) {
    int plain = !tensor->tensor.layout && !net_is_16_bit(&tensor->tensor);
    tensor->family = plain ? NULL : family;
    tensor->context = context;
}

/* Puts in a reorder; *result is the reordered tensor. */
static dlc_status reorder_to(dlc_net *net, op_list *list, int32_t tensor,
                             const dlc_family *family, void *context,
                             const dlc_tensor *wanted, int32_t *result) {
    int32_t found = find_reordered(net, list, tensor, family, wanted);
    if (found != NO_OP) {
        *result = found;
        return DLC_OK;
    }
    net_op *op = list_add(list);
    if (!op)
        return DLC_ERR_NOMEM;
    DLC_TRY(allocate_reorder(op));
    const net_tensor from = net->tensor[tensor];
    op->family = family;
    op->context = context;
    op->in[0] = from.tensor;
    op->out[0] = *wanted;
    op->input[0] = tensor;
    DLC_TRY(family->reorder_create(context, &from.tensor, wanted, &op->there));
    if (from.wants_gradient && net->args.phase == DLC_PHASE_TRAIN) {
        DLC_TRY(family->reorder_create(context, wanted, &from.tensor, &op->back));
        op->runs_backward = op->reaches_loss = op->edge[0].wanted = 1;
    }
    int32_t added = dlc_net_tensor_add(net, wanted, list->count - 1);
    if (added < 0)
        return added;
    net->tensor[added].wants_gradient = from.wants_gradient;
    net->tensor[added].spread = from.spread;
    net->tensor[added].channels = from.channels;
    net->tensor[added].of_portion = from.of_portion;
    own_layout(&net->tensor[added], family, context);
    op->output[0] = added;
    net->reorders++;
    *result = added;
    return DLC_OK;
}

/* What a layer is offered: the tensor as it is, or made plain for a stranger and
 * float32 for who knows nothing else. */
static dlc_status offer_input(dlc_net *net, op_list *list, net_op *op, int32_t i) {
    const net_tensor *tensor = &net->tensor[op->input[i]];
    int wants_f32 = !net_knows_type(op->feature, &tensor->tensor);
    int by_blocks = op->block_rows && tensor->tensor.layout;
    if (tensor->family && (tensor->family != op->family || wants_f32 || by_blocks)) {
        dlc_tensor plain = tensor->tensor;
        plain.layout = NULL;
        plain.bytes = 0;
        plain.dtype = wants_f32 ? DLC_F32 : plain.dtype;
        DLC_TRY(reorder_to(net, list, op->input[i], tensor->family, tensor->context,
                           &plain, &op->input[i]));
    }
    op->in[i] = net->tensor[op->input[i]].tensor;
    if (op->block_rows)
        op->in[i].shape.dims[0] = op->block_rows;
    return DLC_OK;
}

static dlc_status check_prepared(const dlc_net *net, const net_op *op) {
    const net_tensor *tensor = &net->tensor[op->input[0]];
    for (int32_t i = 0; i < op->plan.params; i++)
        if (op->param[i].count < dlc_shape_count(&op->param[i].shape))
            return dlc_fail(DLC_ERR_PLUGIN,
                            "layer '%s': parameter '%s' is laid out in fewer elements "
                            "than it has",
                            op->name, op->param[i].name);
    if (op->block_rows && (op->in[0].layout || op->out[0].layout ||
                           op->in[0].dtype != tensor->tensor.dtype))
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': type '%s' wants samples in a layout of its own, "
                        "and cannot be given those of several ranks; take [parallel] tensor_schedule "
                        "= rotating or whole",
                        op->name, op->feature->name);
    return DLC_OK;
}

/* An exchange moves plain float32, which the tensor's family makes of what it has. */
static dlc_status prepare_exchange(dlc_net *net, op_list *list, net_op *op) {
    const net_tensor *tensor = &net->tensor[op->input[0]];
    if (!tensor->family)
        return DLC_OK;
    return reorder_to(net, list, op->input[0], tensor->family, tensor->context,
                      &op->in[0], &op->input[0]);
}

static dlc_status prepare_layer(dlc_net *net, op_list *list, net_op *op) {
    for (int32_t i = 0; i < op->plan.inputs; i++)
        DLC_TRY(offer_input(net, list, op, i));
    dlc_status status = op->ops->prepare(op->layer, &op->plan);
    if (status != DLC_OK)
        return dlc_net_blame(op, NULL, status);
    DLC_TRY(check_prepared(net, op));
    for (int32_t i = 0; i < op->plan.inputs; i++)
        if (!same_layout(op->family, &net->tensor[op->input[i]].tensor, &op->in[i]))
            DLC_TRY(reorder_to(net, list, op->input[i], op->family, op->context,
                               &op->in[i], &op->input[i]));
    for (int32_t i = 0; i < op->plan.outputs; i++) {
        net_tensor *out = &net->tensor[op->output[i]];
        out->tensor.layout = op->out[i].layout;
        out->tensor.bytes = op->out[i].bytes;
        out->tensor.dtype = op->out[i].dtype;
        own_layout(out, op->family, op->context);
    }
    return DLC_OK;
}

/* Takes the list over from the net's old one. */
static void renumber(dlc_net *net, const op_list *list, int32_t old_tensors) {
    for (int32_t i = 0; i < old_tensors; i++)
        if (net->tensor[i].producer != NO_OP)
            net->tensor[i].producer = list->moved[net->tensor[i].producer];
    for (int32_t i = 0; i < list->count; i++)
        if (list->op[i].absorbed_by != NO_OP)
            list->op[i].absorbed_by = list->moved[list->op[i].absorbed_by];
}

dlc_status dlc_net_prepare(dlc_net *net) {
    op_list list = {.moved = dlc_alloc((size_t)net->ops, sizeof(int32_t))};
    dlc_status status = list.moved ? DLC_OK : DLC_ERR_NOMEM;
    int32_t old_tensors = net->tensors, done = 0;
    for (; status == DLC_OK && done < net->ops; done++) {
        net_op *op = &net->op[done];
        if (op->port)
            status = dlc_net_prepare_port(net, op);
        else if (op->exchange)
            status = prepare_exchange(net, &list, op);
        else if (op->absorbed_by == NO_OP)
            status = prepare_layer(net, &list, op);
        net_op *place = status == DLC_OK ? list_add(&list) : NULL;
        if (!place) {
            status = status == DLC_OK ? DLC_ERR_NOMEM : status;
            break;
        }
        *place = *op;
        list.moved[done] = list.count - 1;
    }
    /* On failure too every operation must be in the list that is freed. */
    for (int32_t i = done; status != DLC_OK && i < net->ops; i++) {
        net_op *place = list_add(&list);
        if (place)
            *place = net->op[i];
        else
            dlc_net_op_free(&net->op[i]);
    }
    if (status == DLC_OK)
        renumber(net, &list, old_tensors);
    dlc_free(list.moved);
    dlc_free(net->op);
    net->op = list.op;
    net->ops = list.count;
    /* The plans point to arrays of their own, which did not move. */
    return status;
}
