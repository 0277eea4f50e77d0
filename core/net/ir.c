/* Operations, tensors and buffers of a net: adding them, finding them, and facts about
 * them that several passes and the executor need. */
#include "net/ir.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* ---- Operations ------------------------------------------------------------------ */

void dlc_net_op_free(net_op *op) {
    if (op->ops->free)
        op->ops->free(op);
    dlc_free(op->edge);
    dlc_free(op->input);
    dlc_free(op->in);
    dlc_free(op);
}

static net_op *make_op(const dlc_net_op_ops *ops, size_t bytes, int32_t inputs) {
    size_t n = (size_t)inputs + 1; /* one more for the other input of a fused sum */
    net_op *op = dlc_alloc(1, bytes);
    if (!op)
        return NULL;
    op->ops = ops;
    op->node = NO_NODE;
    op->in = dlc_alloc(n, sizeof *op->in);
    op->input = dlc_alloc(n, sizeof *op->input);
    op->edge = dlc_alloc(n, sizeof *op->edge);
    for (int i = 0; i < DLC_MAX_OUTPUTS; i++)
        op->output[i] = NO_TENSOR;
    op->beyond = NO_TENSOR;
    op->workspace_buffer = op->chunk_gradient_buffer = op->chunk_metric_buffer =
        op->discarded_buffer = NO_BUFFER;
    for (int i = 0; i < NET_RUNS; i++)
        op->scratch_buffer[i] = NO_BUFFER;
    op->memory = (dlc_layer_memory){.size = sizeof op->memory,
                                    .inputs = inputs,
                                    .outputs = 1,
                                    .in = op->in,
                                    .out = op->out,
                                    .param_count = op->param_count};
    if (op->in && op->input && op->edge)
        return op;
    dlc_net_op_free(op);
    return NULL;
}

static void renumber_from(dlc_net *net, int32_t first) {
    for (int32_t i = first; i < net->ops; i++)
        net->op[i]->index = i;
}

net_op *dlc_net_op_insert(dlc_net *net, int32_t index, const dlc_net_op_ops *ops,
                          size_t bytes, int32_t inputs) {
    net_op **grown = dlc_grow_by_one(net->op, (size_t)net->ops, sizeof(net_op *));
    if (!grown)
        return NULL;
    net->op = grown;
    net_op *op = make_op(ops, bytes, inputs);
    if (!op)
        return NULL;
    memmove(&net->op[index + 1], &net->op[index],
            (size_t)(net->ops - index) * sizeof(net_op *));
    net->op[index] = op;
    net->ops++;
    renumber_from(net, index);
    return op;
}

static void orphan(dlc_net *net, int32_t tensor) {
    if (tensor == NO_TENSOR)
        return;
    net->tensor[tensor].producer = NULL;
    net->tensor[tensor].is_inferred = 0;
}

void dlc_net_op_remove(dlc_net *net, net_op *op) {
    for (int j = 0; j < DLC_MAX_OUTPUTS; j++)
        orphan(net, op->output[j]);
    orphan(net, op->beyond);
    if (op->node != NO_NODE)
        net->of_node[op->node] = NULL;
    net->op[op->index] = NULL;
    dlc_net_op_free(op);
}

void dlc_net_ops_close_up(dlc_net *net) {
    int32_t kept = 0;
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i])
            net->op[kept++] = net->op[i];
    net->ops = kept;
    renumber_from(net, 0);
}

net_op *dlc_net_op_of_node(const dlc_net *net, int32_t node) {
    return net && net->of_node ? net->of_node[node] : NULL;
}

dlc_status dlc_net_blame(const net_op *op, const char *phase, dlc_status status) {
    char quoted[256];
    const char *detail = dlc_detail();
    snprintf(quoted, sizeof quoted, "'%s'", op->name);
    if (strstr(detail, quoted))
        return status;
    return dlc_fail(status, "layer %s%s%s: %s", quoted, phase ? ", " : "",
                    phase ? phase : "", *detail ? detail : dlc_status_text(status));
}

/* ---- Tensors --------------------------------------------------------------------- */

dlc_status dlc_net_tensor_add(dlc_net *net, const dlc_tensor *shape, net_op *producer,
                              int32_t *tensor) {
    net_tensor *grown = dlc_grow_by_one(net->tensor, (size_t)net->tensors,
                                        sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    net->tensor = grown;
    net->tensor[net->tensors] = (net_tensor){.producer = producer,
                                             .kept_until = NO_STEP,
                                             .data_buffer = NO_BUFFER,
                                             .diff_buffer = NO_BUFFER,
                                             .recompute_buffer = NO_BUFFER,
                                             .converted = NO_TENSOR,
                                             .converted_before = NO_TENSOR};
    if (shape)
        dlc_net_set_shape(net, net->tensors, shape);
    *tensor = net->tensors++;
    return DLC_OK;
}

dlc_status dlc_net_output_add(dlc_net *net, net_op *op, int32_t output) {
    return op->output[output] == NO_TENSOR
               ? dlc_net_tensor_add(net, NULL, op, &op->output[output])
               : DLC_OK;
}

void dlc_net_set_shape(dlc_net *net, int32_t tensor, const dlc_tensor *shape) {
    net->tensor[tensor].tensor = *shape;
    net->tensor[tensor].is_inferred = 1;
}

void dlc_net_note_conversion(dlc_net *net, int32_t from, int32_t to) {
    net->tensor[to].converted_before = net->tensor[from].converted;
    net->tensor[from].converted = to;
}

const char *dlc_net_tensor_name(const dlc_net *net, int32_t tensor) {
    const net_op *producer = net->tensor[tensor].producer;
    if (producer)
        return producer->name;
    int32_t boundary = tensor - net_boundary_in(net, 0);
    if (boundary >= 0 && boundary < net->args.boundaries_in)
        return net->args.graph->layer[net->args.boundary_in[boundary].layer].name;
    return boundary < 0 ? net->args.fields.field[tensor].name : "label";
}

static void note_backward_read(net_reads *reads, int32_t index) {
    if (reads->backward_least == NO_OP)
        reads->backward_least = index;
    reads->backward_most = index;
}

/* Notes what an operation reads; all before it have been noted. */
static void note_reads(const net_op *op, net_reads *reads) {
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        net_reads *in = &reads[op->input[j]];
        if (in->first == NO_OP)
            in->first = op->index;
        in->last = op->index;
        if (op->edge[j].wanted)
            in->wanted = op->index;
        if (op->runs_backward && op->memory.reads_in >> j & 1)
            note_backward_read(in, op->index);
    }
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (op->runs_backward && op->memory.reads_out >> j & 1 &&
            op->output[j] != NO_TENSOR)
            note_backward_read(&reads[op->output[j]], op->index);
}

dlc_status dlc_net_find_reads(dlc_net *net) {
    net_reads *reads = dlc_alloc((size_t)net->tensors, sizeof *reads);
    if (!reads)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < net->tensors; i++)
        reads[i] = (net_reads){NO_OP, NO_OP, NO_OP, NO_OP, NO_OP};
    for (int32_t i = 0; i < net->ops; i++)
        if (!net->op[i]->fused_into)
            note_reads(net->op[i], reads);
    dlc_free(net->reads);
    net->reads = reads;
    return DLC_OK;
}

void dlc_net_backward_reads(const dlc_net *net, int32_t tensor, int32_t *first,
                            int32_t *last) {
    const net_reads *reads = &net->reads[tensor];
    *first = *last = NO_STEP;
    if (reads->backward_least == NO_OP)
        return;
    *first = net_backward_step(net, net->op[reads->backward_most]);
    *last = net_backward_step(net, net->op[reads->backward_least]);
}

int dlc_net_later_gradient(const dlc_net *net, const net_op *op, int32_t tensor) {
    return net->reads[tensor].wanted > op->index;
}

/* ---- Buffers --------------------------------------------------------------------- */

dlc_status dlc_net_buffer_add(dlc_net *net, size_t bytes, int32_t first, int32_t last,
                              int32_t *buffer) {
    dlc_buffer *grown = dlc_grow_by_one(net->buffer, (size_t)net->buffers_planned,
                                        sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    net->buffer = grown;
    net->buffer[net->buffers_planned] = (dlc_buffer){
        .bytes = bytes, .first = first, .last = last};
    *buffer = net->buffers_planned++;
    return DLC_OK;
}

void *dlc_net_buffer_at(const dlc_net *net, int32_t buffer) {
    if (buffer < 0)
        return NULL;
    return net->activations + net->micro_batch_offset + net->buffer[buffer].offset;
}

size_t dlc_net_gradient_count(const dlc_net *net, const net_op *op, int32_t params) {
    enum { LINE = 16 };
    size_t count = 0;
    for (int32_t j = 0; j < params; j++)
        count += (net->param[op->first_param + j].own.count + LINE - 1) / LINE * LINE;
    return count;
}

dlc_status dlc_net_gradient_buffer_add(dlc_net *net, const net_op *op,
                                       int32_t *buffer) {
    size_t count = dlc_net_gradient_count(net, op, op->memory.params);
    int32_t step = net_backward_step(net, op);
    return count ? dlc_net_buffer_add(net, count * sizeof(float), step, step, buffer)
                 : DLC_OK;
}

/* ---- Facts ----------------------------------------------------------------------- */

int dlc_net_on_host(const dlc_net *net) {
    return (net->args.device_feature->caps & DLC_DEVICE_HOST) != 0;
}

dlc_status dlc_net_copy(const dlc_net *net, void *dst, const void *src, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return bytes ? args->device_ops->copy(args->device, args->queue, dst, src, bytes)
                 : DLC_OK;
}

dlc_status dlc_net_sync(const dlc_net *net) {
    const dlc_net_args *args = &net->args;
    return args->queue ? args->device_ops->queues->queue_sync(args->device, args->queue)
                       : DLC_OK;
}

uint32_t dlc_net_backward_parts(const net_op *op) {
    uint32_t parts = 0;
    if (!op->runs_backward)
        return 0;
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (op->edge[j].wanted)
            parts |= DLC_BACKWARD_DATA;
    for (int32_t j = 0; j < op->memory.params; j++)
        if (net_is_trained(op, j))
            parts |= DLC_BACKWARD_WEIGHTS;
    return parts;
}

int dlc_net_can_split_backward(const net_op *op) {
    return op->caps & DLC_LAYER_SPLIT_BACKWARD &&
           dlc_net_backward_parts(op) == (DLC_BACKWARD_DATA | DLC_BACKWARD_WEIGHTS);
}

dlc_net_part dlc_net_backward_part(const net_op *op) {
    return dlc_net_backward_parts(op) == DLC_BACKWARD_WEIGHTS ? DLC_NET_BACKWARD_WEIGHTS
                                                              : DLC_NET_BACKWARD_DATA;
}

/* ---- Reports --------------------------------------------------------------------- */

static const char *first_reader(const dlc_net *net, int32_t tensor) {
    int32_t first = net->reads[tensor].first;
    return first == NO_OP ? NULL : net->op[first]->name;
}

void dlc_net_describe_inserted(const dlc_net *net, const net_op *op, dlc_net_row *row) {
    row->type = op->name;
    row->is_reorder = 1;
    row->producer = dlc_net_tensor_name(net, op->input[0]);
    row->reader = first_reader(net, op->output[0]);
}

/* ---- Parameters ------------------------------------------------------------------ */

const dlc_arenas *dlc_net_arenas_of(const dlc_net *net, int32_t set) {
    return &net->arenas[set];
}

const dlc_arenas *dlc_net_arenas(const dlc_net *net) {
    return &net->arenas[DLC_PARAMS_WHOLE];
}

int32_t dlc_net_params(const dlc_net *net) {
    return net->params;
}

const dlc_net_param *dlc_net_param_at(const dlc_net *net, int32_t i) {
    return &net->param[i].own;
}

float *dlc_net_param_arena(const dlc_net *net, int32_t i) {
    const dlc_net_param *param = &net->param[i].own;
    const dlc_arenas *arenas = &net->arenas[param->set];
    if (param->is_frozen)
        return arenas->frozen;
    return param->is_buffer ? arenas->buffers : arenas->weights;
}

const char *dlc_net_collective_layer(const dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i]->in_group)
            return net->op[i]->name;
    return NULL;
}
