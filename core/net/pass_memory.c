/* The passes that plan memory. Buffers are in use from the first step that writes them
 * to the last that reads them; step i is forward of operation i, step 2n-1-i its
 * backward. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/ops.h"

/* ---- The pass `params` ----------------------------------------------------------- */

/* Gives parameters their offsets in the arenas, in the order in which backward
 * completes them, so that a bucket is a contiguous slice. */

/* Every parameter begins on a piece, so that its norm does not depend on where it is.
 */
static size_t align_count(size_t count) {
    return (count + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE * DLC_SQUARE_PIECE;
}

static int32_t count_params(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        if (!net->op[i]->fused_into)
            count += net->op[i]->memory.params;
    return count;
}

static dlc_status allocate_tables(dlc_net *net, int32_t count) {
    size_t n = (size_t)count;
    net->param = dlc_alloc(n, sizeof *net->param);
    int complete = net->param != NULL;
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        net->segment[s] = dlc_alloc(n, sizeof *net->segment[s]);
        net->arenas[s].segment = net->segment[s];
        complete &= net->segment[s] != NULL;
    }
    return complete ? DLC_OK : DLC_ERR_NOMEM;
}

static const dlc_net_param *find_net_param(const dlc_net *net, const char *name) {
    ptrdiff_t i = dlc_names_find(&net->param_names, name);
    return i < 0 ? NULL : &net->param[i].own;
}

/* Sets the offset of the next parameter: after the others, or the one that it has in
 * the training net. */
static dlc_status place_param(const dlc_net *net, dlc_net_param *param, size_t end) {
    param->offset = end;
    if (!net->args.train_net)
        return DLC_OK;
    const dlc_net_param *same = find_net_param(net->args.train_net, param->name);
    if (!same || same->count != param->count || same->is_buffer != param->is_buffer ||
        same->is_frozen != param->is_frozen || same->set != param->set)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: a test needs this parameter, but training does not have it in the same "
            "size; let the layer take part in both phases",
            param->name);
    param->offset = same->offset;
    return DLC_OK;
}

static void add_segment(dlc_net *net, const dlc_net_param *param,
                        const dlc_param *from) {
    int32_t index = net->arenas[param->set].segments++;
    net->segment[param->set][index] = (dlc_segment){.name = param->name,
                                                    .offset = param->offset,
                                                    .count = param->count,
                                                    .lr_mult = from->lr_mult,
                                                    .decay_mult = from->decay_mult};
}

static size_t *end_of_arena(dlc_arenas *arenas, const dlc_net_param *param) {
    if (param->is_frozen)
        return &arenas->frozen_count;
    return param->is_buffer ? &arenas->buffer_count : &arenas->count;
}

static dlc_status add_param(dlc_net *net, net_op *op, int32_t index) {
    const net_layer *layer = (const net_layer *)op; /* nothing else has parameters */
    const dlc_param *from = &op->param[index];
    char *name = dlc_format("%s.%s", op->name, from->name);
    if (!name)
        return DLC_ERR_NOMEM;
    net_param *added = &net->param[net->params++];
    dlc_net_param *param = &added->own;
    *added = (net_param){.op = op, .index = index, .name = name};
    *param = (dlc_net_param){.name = name,
                             .shape = from->shape,
                             .is_buffer = !net_is_trained(op, index),
                             .is_average = (from->flags & DLC_PARAM_BUFFER) != 0,
                             .is_frozen = op->frozen,
                             .is_common = op->in_group,
                             .count = (size_t)op->memory.param_count[index],
                             .set = layer->total_channels > 0 ? DLC_PARAMS_ROWS
                                                              : DLC_PARAMS_WHOLE,
                             .whole = from->shape,
                             .first = layer->channel_begin,
                             .order = (op->node + 1) * DLC_MAX_PARAMS - 1 - index};
    if (param->set == DLC_PARAMS_ROWS)
        param->whole.dims[0] = layer->total_channels;
    DLC_TRY(dlc_names_add(&net->param_names, name, (size_t)net->params - 1));
    size_t *end = end_of_arena(&net->arenas[param->set], param);
    DLC_TRY(place_param(net, param, *end));
    *end += align_count(param->count);
    if (!param->is_buffer)
        add_segment(net, param, from);
    return DLC_OK;
}

dlc_status dlc_net_pass_params(dlc_net *net) {
    DLC_TRY(allocate_tables(net, count_params(net)));
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        net_op *op = net->op[i];
        op->first_param = net->params;
        for (int32_t j = 0; !op->fused_into && j < op->memory.params; j++)
            DLC_TRY(add_param(net, op, j));
    }
    net->arenas[DLC_PARAMS_WHOLE].control_words = DLC_CONTROL_WORDS;
    net->arenas[DLC_PARAMS_WHOLE].count += DLC_CONTROL_WORDS;
    return DLC_OK;
}

/* ---- The pass `memory` ----------------------------------------------------------- */

/* Plans a buffer for each tensor, gradient and workspace. */

static void use_until(dlc_net *net, int32_t buffer, int32_t step) {
    if (buffer >= 0 && net->buffer[buffer].last < step)
        net->buffer[buffer].last = step;
}

/* The last step of forward that writes or reads the tensor. */
static int32_t last_forward_read(const dlc_net *net, int32_t tensor) {
    const net_op *producer = net->tensor[tensor].producer;
    int32_t written = producer ? producer->index : NO_STEP;
    int32_t last = net->reads[tensor].last; /* step i is operation i */
    return last > written ? last : written;
}

static int is_metric_output(const net_tensor *tensor) {
    return tensor->producer && tensor->producer->caps & DLC_LAYER_METRIC;
}

/* The last step that reads the tensor where forward left it. */
static int32_t last_read(const dlc_net *net, int32_t tensor) {
    const net_tensor *from = &net->tensor[tensor];
    int32_t first, last;
    if (is_metric_output(from)) /* metrics are read after the pass */
        return 2 * net->ops - 1;
    dlc_net_backward_reads(net, tensor, &first, &last);
    if (last == NO_STEP || from->recompute_before)
        last = last_forward_read(net, tensor);
    return last > from->kept_until ? last : from->kept_until;
}

/* The buffer of an input that is last used by the operation, and that its output may
 * reuse; NO_BUFFER if there is none. */
static int32_t buffer_to_reuse(const dlc_net *net, const net_op *op) {
    size_t bytes = dlc_tensor_bytes(&net->tensor[op->output[0]].tensor);
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_tensor *in = &net->tensor[op->input[j]];
        if (op->memory.in_place >> j & 1 && in->data_buffer != NO_BUFFER &&
            in->producer && dlc_tensor_bytes(&in->tensor) == bytes &&
            net->buffer[in->data_buffer].last <= op->index)
            return in->data_buffer;
    }
    return NO_BUFFER;
}

static dlc_status plan_scratch(dlc_net *net, net_op *op, net_run kind, int32_t step) {
    if (!op->memory.scratch_bytes)
        return DLC_OK;
    return dlc_net_buffer_add(net, op->memory.scratch_bytes, step, step,
                              &op->scratch_buffer[kind]);
}

/* Plans the buffer of a tensor that is recomputed in backward. */
static dlc_status plan_recomputed(dlc_net *net, int32_t index) {
    net_tensor *tensor = &net->tensor[index];
    int32_t made = net_backward_step(net, tensor->recompute_before), first, last;
    dlc_net_backward_reads(net, index, &first, &last);
    DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&tensor->tensor), made,
                               last > made ? last : made, &tensor->recompute_buffer));
    return plan_scratch(net, tensor->producer, NET_RUN_RECOMPUTE, made);
}

static dlc_status plan_output(dlc_net *net, const net_op *op, int32_t j) {
    net_tensor *out = &net->tensor[op->output[j]];
    int32_t last = last_read(net, op->output[j]);
    if (out->is_boundary) /* in memory of the pass */
        return DLC_OK;
    out->data_buffer = j == 0 ? buffer_to_reuse(net, op) : NO_BUFFER;
    if (out->data_buffer == NO_BUFFER)
        DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&out->tensor), op->index, last,
                                   &out->data_buffer));
    use_until(net, out->data_buffer, last);
    return out->recompute_before ? plan_recomputed(net, op->output[j]) : DLC_OK;
}

static dlc_status plan_workspace(dlc_net *net, net_op *op) {
    int32_t last = op->runs_backward ? net_backward_step(net, op) : op->index;
    if (!op->memory.workspace_bytes)
        return DLC_OK;
    return dlc_net_buffer_add(net, op->memory.workspace_bytes, op->index, last,
                              &op->workspace_buffer);
}

/* The batch is read in place; only a device with memory of its own needs a copy, also
 * of labels that no layer of a stage reads. */
static dlc_status plan_batch(dlc_net *net) {
    for (int32_t i = 0; i < net->args.fields.count && !dlc_net_on_host(net); i++) {
        net_tensor *tensor = &net->tensor[i];
        int32_t last = last_read(net, i);
        DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&tensor->tensor), 0,
                                   last > 0 ? last : 0, &tensor->data_buffer));
    }
    return DLC_OK;
}

/* May the gradient of input `j` overwrite that of the output, which is not read after
 * this step? Only one input may. */
static int may_overwrite(const dlc_net *net, const net_op *op, int32_t j) {
    const net_tensor *in = &net->tensor[op->input[j]],
                     *out = &net->tensor[op->output[0]];
    for (int32_t k = 0; k < j; k++)
        if (op->edge[k].wanted && op->edge[k].buffer == out->diff_buffer)
            return 0;
    return op->memory.in_place >> j & 1 && out->diff_buffer >= 0 &&
           dlc_tensor_bytes(&out->tensor) == dlc_tensor_bytes(&in->tensor) &&
           net->buffer[out->diff_buffer].last <= net_backward_step(net, op);
}

/* Plans a buffer for the gradient of one input, or for a part of it. */
static dlc_status plan_written(dlc_net *net, const net_op *op, int32_t j) {
    net_tensor *in = &net->tensor[op->input[j]];
    net_edge *edge = &op->edge[j];
    int32_t step = net_backward_step(net, op);
    if (may_overwrite(net, op, j))
        edge->buffer = net->tensor[op->output[0]].diff_buffer;
    else
        DLC_TRY(dlc_net_buffer_add(net, dlc_tensor_bytes(&in->tensor), step, step,
                                   &edge->buffer));
    if (edge->add)
        return DLC_OK;
    in->diff_buffer = edge->buffer;
    if (in->producer)
        use_until(net, edge->buffer, net_backward_step(net, in->producer));
    return DLC_OK;
}

/* Plans the gradient of one input. */
static dlc_status plan_edge(dlc_net *net, const net_op *op, int32_t j) {
    net_tensor *in = &net->tensor[op->input[j]];
    net_edge *edge = &op->edge[j];
    if (in->is_boundary && !edge->add && !edge->accumulates)
        in->diff_buffer = BOUNDARY_BUFFER;
    else if (!edge->accumulates)
        return plan_written(net, op, j);
    edge->buffer = in->diff_buffer;
    return DLC_OK;
}

static dlc_status plan_gradients(dlc_net *net) {
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        const net_op *op = net->op[i];
        for (int32_t j = 0; op->runs_backward && j < op->memory.inputs; j++)
            if (op->edge[j].wanted)
                DLC_TRY(plan_edge(net, op, j));
    }
    return DLC_OK;
}

/* Plans memory for the parameters' gradients of a frozen layer that cannot leave them
 * out. Nobody reads them. */
static dlc_status plan_discarded(dlc_net *net, net_op *op) {
    int splits = (op->caps & DLC_LAYER_SPLIT_BACKWARD) != 0;
    return op->frozen && !splits
               ? dlc_net_gradient_buffer_add(net, op, &op->discarded_buffer)
               : DLC_OK;
}

static dlc_status plan_op(dlc_net *net, net_op *op) {
    for (int32_t j = 0; j < op->memory.outputs; j++)
        DLC_TRY(plan_output(net, op, j));
    DLC_TRY(plan_workspace(net, op));
    DLC_TRY(plan_scratch(net, op, NET_RUN_FORWARD, op->index));
    if (!op->runs_backward)
        return DLC_OK;
    DLC_TRY(plan_discarded(net, op));
    return plan_scratch(net, op, NET_RUN_BACKWARD, net_backward_step(net, op));
}

dlc_status dlc_net_pass_memory(dlc_net *net) {
    DLC_TRY(dlc_net_find_reads(net));
    DLC_TRY(plan_batch(net));
    for (int32_t i = 0; i < net->ops; i++)
        if (!net->op[i]->fused_into)
            DLC_TRY(plan_op(net, net->op[i]));
    return plan_gradients(net);
}

/* ---- The pass `offsets` ---------------------------------------------------------- */

/* The last pass. It places the planned buffers in one block, so that buffers that are
 * never in use at the same time share bytes. */

static int by_buffer_size(const void *left, const void *right) {
    const dlc_buffer *a = *(const dlc_buffer *const *)left;
    const dlc_buffer *b = *(const dlc_buffer *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : 1; /* ties are broken the same way on every machine */
}

static int are_in_use_together(const dlc_buffer *a, const dlc_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which a buffer fits between those that are placed, which are
 * sorted by offset, and in use at the same time. */
static size_t lowest_gap(dlc_buffer *const *placed, size_t count,
                         const dlc_buffer *buffer) {
    size_t offset = 0, bytes = net_align(buffer->bytes);
    for (size_t i = 0; i < count && placed[i]->offset < offset + bytes; i++) {
        size_t end = placed[i]->offset + net_align(placed[i]->bytes);
        if (end > offset && are_in_use_together(placed[i], buffer))
            offset = end;
    }
    return offset;
}

/* Keeps the order by offset, of equal ones the one in which they come. */
static void insert_placed(dlc_buffer **placed, size_t count, dlc_buffer *buffer) {
    size_t begin = 0, end = count;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (placed[middle]->offset <= buffer->offset)
            begin = middle + 1;
        else
            end = middle;
    }
    memmove(&placed[begin + 1], &placed[begin], (count - begin) * sizeof(dlc_buffer *));
    placed[begin] = buffer;
}

dlc_status dlc_buffers_place(dlc_buffer *buffers, size_t count, size_t *total) {
    dlc_status status = DLC_ERR_NOMEM;
    dlc_buffer **order = dlc_alloc(count, sizeof(dlc_buffer *));
    dlc_buffer **placed = dlc_alloc(count, sizeof(dlc_buffer *));
    if (!order || !placed)
        goto out;
    for (size_t i = 0; i < count; i++)
        order[i] = &buffers[i];
    qsort(order, count, sizeof(dlc_buffer *), by_buffer_size);

    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        order[i]->offset = lowest_gap(placed, i, order[i]);
        insert_placed(placed, i, order[i]);
        size_t end = order[i]->offset + net_align(order[i]->bytes);
        if (end > size)
            size = end;
    }
    *total = size;
    status = DLC_OK;
out:
    dlc_free(placed);
    dlc_free(order);
    return status;
}

dlc_status dlc_net_pass_offsets(dlc_net *net) {
    return dlc_buffers_place(net->buffer, (size_t)net->buffers_planned,
                             &net->activation_bytes);
}
