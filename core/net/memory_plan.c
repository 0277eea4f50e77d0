/* The memory plan assigns a buffer to each tensor, gradient and workspace, in use from
 * the first step that writes it to the last that reads it. Step i is forward of
 * operation i, step 2n-1-i its backward. */
#include "base/memory.h"
#include "net/batch_chunks.h"

#include <string.h>

static int32_t forward_step(int32_t op) {
    return op;
}

int dlc_net_on_host(const dlc_net *net) {
    return (net->args.device_feature->caps & DLC_DEVICE_HOST) != 0;
}

int32_t dlc_net_buffer_add(dlc_net *net, size_t bytes, int32_t first, int32_t last) {
    if (net->buffers_planned == net->buffer_room) {
        int32_t room = net->buffer_room * 2 + 32;
        dlc_buffer *grown = dlc_grow(net->buffer, (size_t)net->buffer_room,
                                     (size_t)room, sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        net->buffer = grown;
        net->buffer_room = room;
    }
    net->buffer[net->buffers_planned] = (dlc_buffer){
        .bytes = bytes, .first = first, .last = last};
    return net->buffers_planned++;
}

static void use_until(dlc_net *net, int32_t buffer, int32_t step) {
    if (buffer >= 0 && net->buffer[buffer].last < step)
        net->buffer[buffer].last = step;
}

/* ---- Activations ----------------------------------------------------------------- */

/* Does backward of the operation read the tensor? */
static int backward_reads(const net_op *op, int32_t tensor) {
    int reads = 0;
    for (int32_t j = 0; j < op->memory.inputs; j++)
        reads |= op->input[j] == tensor && op->memory.reads_in >> j & 1;
    for (int32_t j = 0; j < op->memory.outputs; j++)
        reads |= op->output[j] == tensor && op->memory.reads_out >> j & 1;
    return reads;
}

void dlc_net_backward_reads(const dlc_net *net, int32_t tensor, int32_t *first,
                            int32_t *last) {
    *first = *last = NO_OP;
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        const net_op *op = &net->op[i];
        if (!net_op_runs(op) || !op->runs_backward || !backward_reads(op, tensor))
            continue;
        if (*first == NO_OP)
            *first = net_backward_step(net, i);
        *last = net_backward_step(net, i);
    }
}

/* The last step of forward that writes or reads the tensor. */
static int32_t last_forward_read(const dlc_net *net, int32_t tensor) {
    int32_t last = net->tensor[tensor].producer;
    for (int32_t i = 0; i < net->ops; i++)
        for (int32_t j = 0; net_op_runs(&net->op[i]) && j < net->op[i].memory.inputs;
             j++)
            if (net->op[i].input[j] == tensor && i > last)
                last = i;
    return last;
}

static int is_measured(const dlc_net *net, int32_t tensor) {
    int32_t producer = net->tensor[tensor].producer;
    const dlc_feature *feature = producer == NO_OP ? NULL : net->op[producer].feature;
    return feature && feature->caps & DLC_LAYER_METRIC;
}

/* The last step that reads the tensor where forward left it. */
static int32_t last_read(const dlc_net *net, int32_t tensor) {
    if (is_measured(net, tensor)) /* metrics are read after the pass */
        return net_backward_step(net, 0);
    int32_t forward = last_forward_read(net, tensor), first, last;
    dlc_net_backward_reads(net, tensor, &first, &last);
    if (dlc_net_outlives_chunk(net, tensor)) {
        int32_t end = net_backward_step(net, net->chunks.first_op);
        return last > end ? last : end;
    }
    return last == NO_OP || net->tensor[tensor].recompute_before != NO_OP ? forward
                                                                          : last;
}

/* The buffer of an input that is last used by operation `index`, and that its output
 * may reuse; NO_BUFFER if there is none. */
static int32_t buffer_to_reuse(const dlc_net *net, int32_t index) {
    const net_op *op = &net->op[index];
    size_t bytes = dlc_tensor_bytes(&net->tensor[op->output[0]].tensor);
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_tensor *in = &net->tensor[op->input[j]];
        if (op->memory.in_place >> j & 1 && in->data_buffer != NO_BUFFER &&
            in->producer != NO_OP && dlc_tensor_bytes(&in->tensor) == bytes &&
            net->buffer[in->data_buffer].last <= forward_step(index))
            return in->data_buffer;
    }
    return NO_BUFFER;
}

static dlc_status plan_scratch(dlc_net *net, int32_t index, int kind, int32_t step) {
    net_op *op = &net->op[index];
    if (!op->memory.scratch_bytes)
        return DLC_OK;
    int32_t buffer = dlc_net_buffer_add(net, op->memory.scratch_bytes, step, step);
    if (buffer < 0)
        return buffer;
    op->scratch_buffer[kind] = buffer;
    return DLC_OK;
}

/* Plans the buffer of a tensor that is recomputed in backward. */
static dlc_status plan_recomputed(dlc_net *net, int32_t index) {
    net_tensor *tensor = &net->tensor[index];
    int32_t made = net_backward_step(net, tensor->recompute_before), first, last;
    dlc_net_backward_reads(net, index, &first, &last);
    tensor->recompute_buffer = dlc_net_buffer_add(
        net, dlc_tensor_bytes(&tensor->tensor), made, last > made ? last : made);
    if (tensor->recompute_buffer < 0)
        return tensor->recompute_buffer;
    return plan_scratch(net, tensor->producer, NET_RUN_RECOMPUTE, made);
}

static dlc_status plan_outputs(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    for (int32_t j = 0; j < op->memory.outputs; j++) {
        net_tensor *out = &net->tensor[op->output[j]];
        int32_t last = last_read(net, op->output[j]);
        out->data_buffer = j == 0 ? buffer_to_reuse(net, index) : NO_BUFFER;
        if (out->data_buffer == NO_BUFFER)
            out->data_buffer = dlc_net_buffer_add(net, dlc_tensor_bytes(&out->tensor),
                                                  forward_step(index), last);
        if (out->data_buffer < 0)
            return out->data_buffer;
        use_until(net, out->data_buffer, last);
        if (out->recompute_before != NO_OP)
            DLC_TRY(plan_recomputed(net, op->output[j]));
    }
    if (op->memory.workspace_bytes) {
        int32_t last = op->runs_backward ? net_backward_step(net, index) : index;
        op->workspace_buffer = dlc_net_buffer_add(net, dlc_net_workspace(net, op),
                                                  index, last);
        if (op->workspace_buffer < 0)
            return op->workspace_buffer;
    }
    return DLC_OK;
}

/* The batch is read in place; only a device with memory of its own needs a copy. */
static dlc_status plan_batch(dlc_net *net) {
    for (int32_t i = TENSOR_DATA; i <= TENSOR_LABEL && !dlc_net_on_host(net); i++) {
        net_tensor *tensor = &net->tensor[i];
        tensor->data_buffer = dlc_net_buffer_add(net, dlc_tensor_bytes(&tensor->tensor),
                                                 0, last_read(net, i));
        if (tensor->data_buffer < 0)
            return tensor->data_buffer;
    }
    if (net->chunks.count == 0)
        return DLC_OK;
    net_tensor *label = &net->tensor[net->chunks.label];
    label->data_buffer = dlc_net_buffer_add(net, dlc_tensor_bytes(&label->tensor),
                                            net->chunks.first_op,
                                            last_read(net, net->chunks.label));
    return label->data_buffer < 0 ? label->data_buffer : DLC_OK;
}

/* ---- Gradients ------------------------------------------------------------------- */

/* Has another operation written this gradient, and can the layer accumulate into it? A
 * gradient that the layer writes in the same call does not count. */
static int can_accumulate(const dlc_net *net, const net_op *op, int32_t j) {
    for (int32_t k = 0; k < j; k++)
        if (op->edge[k].wanted && op->input[k] == op->input[j])
            return 0;
    return net->tensor[op->input[j]].diff_buffer != NO_BUFFER &&
           (op->memory.accumulates_gradient >> j & 1) != 0;
}

/* Plans the gradient of one input. The reader whose backward runs first writes the
 * tensor's gradient; later ones accumulate into it, or write to a buffer that is then
 * added. That buffer may be the one of the output's gradient, which is not read after
 * this step. */
static dlc_status plan_edge(dlc_net *net, int32_t index, int32_t j) {
    net_op *op = &net->op[index];
    net_tensor *in = &net->tensor[op->input[j]];
    net_edge *edge = &op->edge[j];
    int32_t step = net_backward_step(net, index);
    size_t bytes = dlc_tensor_bytes(&in->tensor);
    const net_tensor *out = &net->tensor[op->output[0]];
    if (in->is_boundary && in->diff_buffer == NO_BUFFER) {
        edge->buffer = in->diff_buffer = BOUNDARY_BUFFER;
        return DLC_OK;
    }
    if (can_accumulate(net, op, j)) {
        edge->buffer = in->diff_buffer;
        edge->accumulates = 1;
        return DLC_OK;
    }
    int over = op->memory.in_place >> j & 1 && out->diff_buffer >= 0 &&
               dlc_tensor_bytes(&out->tensor) == bytes &&
               net->buffer[out->diff_buffer].last <= step;
    for (int32_t k = 0; over && k < j; k++) /* only one input may reuse it */
        over = !(op->edge[k].wanted && op->edge[k].buffer == out->diff_buffer);
    int32_t first = index == net->chunks.first_op && net->chunks.count > 0
                        ? forward_step(index) /* each chunk writes a part of it */
                        : step;
    int32_t buffer = over ? out->diff_buffer
                          : dlc_net_buffer_add(net, bytes, first, step);
    if (buffer < 0)
        return buffer;
    edge->buffer = buffer;
    edge->add = in->diff_buffer != NO_BUFFER;
    if (!edge->add) {
        in->diff_buffer = buffer;
        if (in->producer != NO_OP)
            use_until(net, buffer, net_backward_step(net, in->producer));
    }
    return DLC_OK;
}

/* Plans memory for the parameters' gradients of a frozen layer that cannot leave them
 * out. Nobody reads them. */
static dlc_status plan_discarded(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    int splits = op->feature && (op->feature->caps & DLC_LAYER_SPLIT_BACKWARD) != 0;
    size_t count = op->frozen && !splits
                       ? dlc_net_gradient_count(net, op, op->memory.params)
                       : 0;
    if (!count)
        return DLC_OK;
    int32_t step = net_backward_step(net, index);
    op->discarded_buffer = dlc_net_buffer_add(net, count * sizeof(float), step, step);
    return op->discarded_buffer < 0 ? op->discarded_buffer : DLC_OK;
}

static dlc_status plan_gradients(dlc_net *net) {
    for (int32_t i = net->ops - 1; i >= 0; i--)
        for (int32_t j = 0; net->op[i].runs_backward && j < net->op[i].memory.inputs;
             j++)
            if (net->op[i].edge[j].wanted)
                DLC_TRY(plan_edge(net, i, j));
    return DLC_OK;
}

static dlc_status plan_backward(dlc_net *net, int32_t index) {
    DLC_TRY(plan_discarded(net, index));
    return plan_scratch(net, index, NET_RUN_BACKWARD, net_backward_step(net, index));
}

dlc_status dlc_net_plan(dlc_net *net) {
    if (net->args.recompute && net->args.phase == DLC_PHASE_TRAIN)
        dlc_net_plan_recompute(net);
    dlc_net_chunks_find(net);
    DLC_TRY(plan_batch(net));
    for (int32_t i = 0; i < net->ops; i++) {
        if (!net_op_runs(&net->op[i]) || net->op[i].boundary)
            continue;
        DLC_TRY(plan_outputs(net, i));
        DLC_TRY(plan_scratch(net, i, NET_RUN_FORWARD, forward_step(i)));
        if (net->op[i].runs_backward)
            DLC_TRY(plan_backward(net, i));
    }
    DLC_TRY(plan_gradients(net));
    DLC_TRY(dlc_net_chunks_plan(net));
    return dlc_buffers_place(net->buffer, (size_t)net->buffers_planned,
                             &net->activation_bytes);
}

/* ---- Memory ---------------------------------------------------------------------- */

void *dlc_net_buffer_at(const dlc_net *net, int32_t buffer) {
    if (buffer < 0)
        return NULL;
    return (char *)net->activations.base + net->pass_offset +
           net->buffer[buffer].offset;
}

/* Sets where backward writes; a reorder has no other pointers. */
static void point_edges(dlc_net *net, net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        net_edge *edge = &op->edge[j];
        edge->target = !edge->wanted ? NULL
                       : edge->buffer == BOUNDARY_BUFFER
                           ? net->tensor[op->input[j]].diff
                           : dlc_net_buffer_at(net, edge->buffer);
    }
}

/* Sets the pointers of one operation; those of the batch are set by set_input. */
static void point_op(dlc_net *net, net_op *op) {
    int in_group = dlc_net_op_is_chunked(net, (int32_t)(op - net->op));
    uint64_t adds = 0;
    for (int32_t j = 0; j < op->memory.outputs; j++) {
        op->out_data[j] = net->tensor[op->output[j]].data;
        op->out_diff[j] = net->tensor[op->output[j]].diff;
    }
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        op->in_data[j] = net->tensor[op->input[j]].data;
        op->in_diff[j] = op->edge[j].target;
        adds |= (uint64_t)op->edge[j].accumulates << j;
    }
    for (int32_t j = 0; j < op->memory.params; j++) {
        int32_t i = op->first_param + j;
        const dlc_net_param *param = &net->param[i];
        op->params[j] = dlc_net_param_arena(net, i) + param->offset;
        float *gradients = param->is_sharded     ? net->sharded_arenas.gradients
                           : net->gradient_arena ? net->gradient_arena
                                                 : net->arenas.gradients;
        if (!param->is_buffer && gradients)
            op->param_diffs[j] = gradients + param->offset;
        else if (op->discarded_buffer != NO_BUFFER &&
                 !(op->param[j].flags & DLC_PARAM_BUFFER))
            op->param_diffs[j] = (float *)dlc_net_buffer_at(net, op->discarded_buffer) +
                                 dlc_net_gradient_count(net, op, j);
    }
    op->run = (dlc_layer_run){
        .size = sizeof op->run,
        .in = op->in_data,
        .out = op->out_data,
        .out_diff = op->out_diff,
        .in_diff = op->in_diff,
        .param = op->params,
        .param_diff = op->param_diffs,
        /* It counts this rank's samples, so it does not apply to those of all ranks. */
        .step_at = op->all_samples || in_group ? NULL : net->args.step_at,
        .loss_scale_at = net->args.loss_scale_at,
        .accumulate = adds,
        .workspace = dlc_net_buffer_at(net, op->workspace_buffer)};
}

static dlc_status take(dlc_net *net, size_t bytes, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return bytes ? net->args.device_ops->alloc(net->args.device, bytes, 0, memory)
                 : DLC_OK;
}

size_t dlc_net_pass_bytes(const dlc_net *net) {
    size_t mask = DLC_BUFFER_ALIGNMENT - 1;
    return (net->activation_bytes + mask) & ~mask;
}

/* The bytes of all sets of micro-batch buffers. */
static size_t memory_bytes(const dlc_net *net) {
    size_t more = net->args.micro_batch_buffers > 1
                      ? (size_t)net->args.micro_batch_buffers - 1
                      : 0;
    return net->activation_bytes + more * dlc_net_pass_bytes(net);
}

static dlc_status take_activations(dlc_net *net) {
    size_t bytes = memory_bytes(net);
    dlc_status status = take(net, bytes, &net->activations);
    if (status == DLC_ERR_NOMEM)
        return dlc_fail(status,
                        "%s (%.2f GB of activations for a batch of %lld: use a smaller "
                        "batch, or [train] recompute = yes)",
                        dlc_detail(), (double)bytes / 1e9, (long long)net->args.batch);
    return status;
}

/* A test net works in the memory of the training net if that is large enough: the two
 * never run at the same time, and nothing in it outlives a pass. */
static int can_borrow(const dlc_net *net) {
    const dlc_net *train_net = net->args.train_net;
    return train_net && net->activation_bytes <= train_net->activation_bytes;
}

void dlc_net_point_from(dlc_net *net, int32_t first) {
    for (int32_t i = first; i < net->ops; i++) {
        if (!net_op_runs(&net->op[i]))
            continue;
        point_edges(net, &net->op[i]);
        for (int j = 0; j < NET_RUNS; j++)
            net->op[i].scratch[j] = dlc_net_buffer_at(net,
                                                      net->op[i].scratch_buffer[j]);
        if (net->op[i].feature)
            point_op(net, &net->op[i]);
    }
}

void dlc_net_point(dlc_net *net) {
    dlc_net_point_from(net, 0);
}

dlc_status dlc_net_take_memory(dlc_net *net) {
    if (can_borrow(net)) {
        net->borrows_activations = 1;
        net->activations = net->args.train_net->activations;
    } else {
        DLC_TRY(take_activations(net));
    }
    for (int32_t i = 0; i < net->tensors; i++) {
        net->tensor[i].data = dlc_net_buffer_at(net, net->tensor[i].data_buffer);
        net->tensor[i].diff = dlc_net_buffer_at(net, net->tensor[i].diff_buffer);
        net->tensor[i].recomputed = dlc_net_buffer_at(net,
                                                      net->tensor[i].recompute_buffer);
    }
    dlc_net_point(net);
    return DLC_OK;
}

dlc_net_memory dlc_net_memory_plan(const dlc_net *net) {
    int owns = net->args.train_net == NULL;
    int borrowed = can_borrow(net);
    size_t count = net->arenas.count + net->sharded_arenas.count;
    size_t weights = owns ? count * sizeof(float) : 0;
    size_t buffers = net->arenas.buffer_count + net->arenas.frozen_count +
                     net->sharded_arenas.frozen_count;
    return (dlc_net_memory){.activations = borrowed ? 0 : memory_bytes(net),
                            .weights = weights,
                            .gradients = net->args.phase == DLC_PHASE_TRAIN ? weights
                                                                            : 0,
                            .buffers = owns ? buffers * sizeof(float) : 0,
                            .reorders = net->reorders};
}
