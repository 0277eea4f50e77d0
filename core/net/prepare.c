/* Prepares a net: each layer is shown the layouts of its inputs and says which it
 * wants; if the two differ, a reorder by the layer's family is inserted. A tensor in a
 * private layout is converted to plain, by its family, for readers of another family.
 */
#include "base/memory.h"
#include "net/internal.h"
#include "net/layer_calls.h"

#include <string.h>

/* The new list of operations: those of the old list, with reorders between them. */
typedef struct op_list {
    net_op *op;
    int32_t count, room;
    int32_t *moved; /* new index of each operation of the old list */
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

/* The output of an existing reorder of `tensor` to `wanted`, or NO_OP. */
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
    op->node = op->fused_into = NO_OP;
    op->workspace_buffer = op->chunk_gradient_buffer = op->chunk_metric_buffer =
        NO_BUFFER;
    for (int i = 0; i < NET_RUNS; i++)
        op->scratch_buffer[i] = NO_BUFFER;
    op->name = "reorder";
    if (!op->in || !op->out || !op->input || !op->output || !op->edge)
        return DLC_ERR_NOMEM;
    op->memory = (dlc_layer_memory){.size = sizeof op->memory,
                                    .inputs = 1,
                                    .in = op->in,
                                    .outputs = 1,
                                    .out = op->out};
    return DLC_OK;
}

/* Notes which family's layout or element type a tensor has, and thus which family can
 * convert it to plain float32. */
static void own_layout(net_tensor *tensor, const dlc_family *family, void *context) {
    int plain = !tensor->tensor.layout && !net_is_16_bit(&tensor->tensor);
    tensor->family = plain ? NULL : family;
    tensor->context = context;
}

/* Inserts a reorder unless there is one; *result is the reordered tensor. */
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
    DLC_TRY(
        family->reorder_create(context, &from.tensor, wanted, &op->reorder_forward));
    if (from.wants_gradient && net->args.phase == DLC_PHASE_TRAIN) {
        DLC_TRY(family->reorder_create(context, wanted, &from.tensor,
                                       &op->reorder_backward));
        op->runs_backward = op->reaches_loss = op->edge[0].wanted = 1;
    }
    int32_t added = dlc_net_tensor_add(net, wanted, list->count - 1);
    if (added < 0)
        return added;
    net->tensor[added].wants_gradient = from.wants_gradient;
    net->tensor[added].placement = from.placement;
    net->tensor[added].channels = from.channels;
    net->tensor[added].in_chunk = from.in_chunk;
    own_layout(&net->tensor[added], family, context);
    op->output[0] = added;
    net->reorders++;
    *result = added;
    return DLC_OK;
}

/* Offers a layer its input as it is, or converted: to plain for another family, and to
 * float32 for a layer that supports nothing else. */
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

static dlc_status check_layouts(const dlc_net *net, const net_op *op) {
    const net_tensor *tensor = &net->tensor[op->input[0]];
    if (op->block_rows && (op->in[0].layout || op->out[0].layout ||
                           op->in[0].dtype != tensor->tensor.dtype))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "layer '%s': type '%s' uses a private layout, which cannot hold samples of "
            "several ranks; set [parallel] tensor_schedule = by_rank or whole_batch",
            op->name, op->feature->name);
    return DLC_OK;
}

/* A reshard operation moves plain float32, to which the tensor's family converts. */
static dlc_status prepare_reshard(dlc_net *net, op_list *list, net_op *op) {
    const net_tensor *tensor = &net->tensor[op->input[0]];
    if (!tensor->family)
        return DLC_OK;
    return reorder_to(net, list, op->input[0], tensor->family, tensor->context,
                      &op->in[0], &op->input[0]);
}

static dlc_status prepare_layer(dlc_net *net, op_list *list, net_op *op) {
    for (int32_t i = 0; i < op->memory.inputs; i++)
        DLC_TRY(offer_input(net, list, op, i));
    DLC_TRY(dlc_layer_prepare(op));
    DLC_TRY(check_layouts(net, op));
    for (int32_t i = 0; i < op->memory.inputs; i++)
        if (!same_layout(op->family, &net->tensor[op->input[i]].tensor, &op->in[i]))
            DLC_TRY(reorder_to(net, list, op->input[i], op->family, op->context,
                               &op->in[i], &op->input[i]));
    for (int32_t i = 0; i < op->memory.outputs; i++) {
        net_tensor *out = &net->tensor[op->output[i]];
        out->tensor.layout = op->out[i].layout;
        out->tensor.bytes = op->out[i].bytes;
        out->tensor.dtype = op->out[i].dtype;
        own_layout(out, op->family, op->context);
    }
    return DLC_OK;
}

/* Renumbers references to operations of the old list. */
static void renumber(dlc_net *net, const op_list *list, int32_t old_tensors) {
    for (int32_t i = 0; i < old_tensors; i++)
        if (net->tensor[i].producer != NO_OP)
            net->tensor[i].producer = list->moved[net->tensor[i].producer];
    for (int32_t i = 0; i < list->count; i++)
        if (list->op[i].fused_into != NO_OP)
            list->op[i].fused_into = list->moved[list->op[i].fused_into];
}

dlc_status dlc_net_prepare(dlc_net *net) {
    op_list list = {.moved = dlc_alloc((size_t)net->ops, sizeof(int32_t))};
    dlc_status status = list.moved ? DLC_OK : DLC_ERR_NOMEM;
    int32_t old_tensors = net->tensors, done = 0;
    for (; status == DLC_OK && done < net->ops; done++) {
        net_op *op = &net->op[done];
        if (op->boundary)
            status = dlc_net_prepare_boundary(net, op);
        else if (op->reshard)
            status = prepare_reshard(net, &list, op);
        else if (op->fused_into == NO_OP)
            status = prepare_layer(net, &list, op);
        net_op *place = status == DLC_OK ? list_add(&list) : NULL;
        if (!place) {
            status = status == DLC_OK ? DLC_ERR_NOMEM : status;
            break;
        }
        *place = *op;
        list.moved[done] = list.count - 1;
    }
    /* Even on failure every operation must be in the list, which is freed later. */
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
    /* The operations point to separate arrays, which have not moved. */
    return status;
}
