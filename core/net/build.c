/* Builds a net: creates layers and infers shapes in the order of the graph, fuses
 * layers, and traces which gradients are needed. */
#include "base/log.h"
#include "base/memory.h"
#include "net/batch_chunks.h"
#include "net/internal.h"
#include "net/layer_calls.h"

#include <string.h>

/* ---- Layers ---------------------------------------------------------------------- */

static dlc_status add_batch_tensors(dlc_net *net) {
    const dlc_shape *sample = &net->args.sample;
    dlc_tensor data = {.dtype = DLC_F32}, label = {.dtype = DLC_I32};
    data.shape.rank = sample->rank + 1;
    data.shape.dims[0] = net->args.batch;
    memcpy(&data.shape.dims[1], sample->dims, (size_t)sample->rank * sizeof(int64_t));
    label.shape = (dlc_shape){.rank = 1, .dims = {net->args.batch}};
    if (dlc_net_tensor_add(net, &data, NO_OP) < 0 ||
        dlc_net_tensor_add(net, &label, NO_OP) < 0)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_net_add_boundaries_in(net));
    if (net->chunks.count == 0)
        return DLC_OK;
    label.shape.dims[0] = net->chunks.local_rows;
    net->chunks.label = dlc_net_tensor_add(net, &label, NO_OP);
    if (net->chunks.label < 0)
        return net->chunks.label;
    net->tensor[net->chunks.label].in_chunk = 1;
    return DLC_OK;
}

/* Gets the context of a family in this net; opens it for the family's first layer. */
static dlc_status open_family(dlc_net *net, const dlc_family *family, void **context) {
    for (int32_t i = 0; i < net->families; i++) {
        if (net->family[i].family == family) {
            *context = net->family[i].context;
            return DLC_OK;
        }
    }
    net_family *grown = dlc_grow(net->family, (size_t)net->families,
                                 (size_t)net->families + 1, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    net->family = grown;
    dlc_family_args args = {.size = sizeof args,
                            .device_ops = net->args.device_ops,
                            .device = net->args.device,
                            .queue = net->args.queue,
                            .threads = net->args.threads,
                            .phase = net->args.phase,
                            .precision = net->args.precision,
                            .math = net->args.math,
                            .autotune = net->args.autotune};
    void *opened = NULL;
    DLC_TRY(family->open(&args, &opened));
    net->family[net->families++] = (net_family){.family = family, .context = opened};
    *context = opened;
    return DLC_OK;
}

net_op *dlc_net_op_of_node(const dlc_net *net, int32_t node) {
    for (int32_t i = 0; net && i < net->ops; i++)
        if (net->op[i].node == node)
            return &net->op[i];
    return NULL;
}

dlc_status dlc_net_allocate_op(net_op *op, int32_t inputs) {
    size_t n = (size_t)inputs + 1; /* one more for the other input of a fused sum */
    op->in = dlc_alloc(n, sizeof *op->in);
    op->out = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->out);
    op->param = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->param);
    op->param_count = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->param_count);
    op->input = dlc_alloc(n, sizeof *op->input);
    op->output = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->output);
    op->edge = dlc_alloc(n, sizeof *op->edge);
    op->in_data = dlc_alloc(n, sizeof *op->in_data);
    op->in_diff = dlc_alloc(n, sizeof *op->in_diff);
    op->out_data = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->out_data);
    op->out_diff = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->out_diff);
    op->params = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->params);
    op->param_diffs = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->param_diffs);
    if (!op->in || !op->out || !op->param || !op->param_count || !op->input ||
        !op->output || !op->edge || !op->in_data || !op->in_diff || !op->out_data ||
        !op->out_diff || !op->params || !op->param_diffs)
        return DLC_ERR_NOMEM;
    op->fused_into = NO_OP;
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
    return DLC_OK;
}

/* Creates a layer: channels [begin, end) of a tensor-parallel one, or all if both are
 * 0. */
static dlc_status create_layer(dlc_net *net, net_op *op, int64_t begin, int64_t end) {
    const dlc_graph_layer *from = &net->args.graph->layer[op->node];
    net_op *trained = dlc_net_op_of_node(net->args.train_net, op->node);
    dlc_layer_args args = {.size = sizeof args,
                           .name = from->name,
                           .settings = from->settings,
                           .phase = net->args.phase,
                           .train_layer = trained ? trained->layer : NULL,
                           .seed = net->args.seed,
                           .index = (uint32_t)op->node,
                           .channel_begin = begin,
                           .channel_end = end,
                           .plain_params = net->args.plain_params &&
                                           net->args.plain_params[op->node],
                           .frozen = from->frozen};
    const dlc_layer_ops *ops = from->feature->ops;
    DLC_TRY(open_family(net, ops->family, &op->context));
    op->family = ops->family;
    args.context = op->context;
    DLC_TRY(ops->create(&args, &op->layer));
    op->ops = ops; /* from here on there is a layer to destroy */
    return DLC_OK;
}

static int32_t tensor_of_input(const dlc_net *net, dlc_graph_input input) {
    if (input.layer == DLC_FROM_DATA)
        return input.output;
    const net_op *producer = dlc_net_op_of_node(net, input.layer);
    if (!producer || input.output >= producer->memory.outputs)
        return producer ? NO_OP : dlc_net_boundary_tensor(net, input);
    return producer->output[input.output];
}

/* Finds the tensor of an input, in the placement that the layer reads; inserts a
 * reshard operation if it does not exist yet. */
static dlc_status find_input(dlc_net *net, int32_t node, int32_t i, int32_t *tensor) {
    const dlc_graph_layer *from = &net->args.graph->layer[node];
    int32_t found = tensor_of_input(net, from->input[i]);
    if (found == TENSOR_LABEL && dlc_net_is_chunked(net, node))
        found = net->chunks.label;
    if (found == NO_OP)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': its input %d comes from layer '%s', which has "
                        "no such output in this phase",
                        from->name, (int)i + 1,
                        net->args.graph->layer[from->input[i].layer].name);
    return dlc_net_reshard_to(net, found, dlc_net_input_placement(net, node), node,
                              tensor);
}

/* Inserts the reshard operations that the layer needs before it. */
static dlc_status reshard_inputs(dlc_net *net, int32_t node) {
    int32_t tensor = NO_OP;
    for (int32_t i = 0; i < net->args.graph->layer[node].inputs; i++)
        DLC_TRY(find_input(net, node, i, &tensor));
    return DLC_OK;
}

static dlc_status find_inputs(dlc_net *net, net_op *op) {
    for (int32_t i = 0; i < op->memory.inputs; i++) {
        DLC_TRY(find_input(net, op->node, i, &op->input[i]));
        op->in[i] = net->tensor[op->input[i]].tensor;
        if (!net_knows_type(op->feature, &op->in[i]))
            op->in[i].dtype = DLC_F32;
        if (op->block_rows)
            op->in[i].shape.dims[0] = op->block_rows;
    }
    return DLC_OK;
}

/* The output of a tensor-parallel layer is channel-sharded; other layers keep the
 * placement of their input. */
static void place_output(const dlc_net *net, const net_op *op, net_tensor *out) {
    out->in_chunk = dlc_net_is_chunked(net, op->node);
    if (op->total_channels) {
        out->placement = CHANNEL_SHARDED;
        out->channels = op->total_channels;
    } else if (op->all_samples) {
        out->placement = net->tensor[op->input[0]].placement;
        out->channels = net->tensor[op->input[0]].channels;
    }
}

static dlc_status infer_layer(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    DLC_TRY(dlc_layer_infer(op, net->args.phase == DLC_PHASE_TRAIN));
    for (int32_t i = 0; i < op->memory.outputs; i++) {
        dlc_tensor out = op->out[i];
        if (op->block_rows)
            out.shape.dims[0] = net->chunks.rows;
        int32_t tensor = dlc_net_tensor_add(net, &out, index);
        if (tensor < 0)
            return tensor;
        op->output[i] = tensor;
        place_output(net, op, &net->tensor[tensor]);
    }
    return DLC_OK;
}

/* ---- Fusing ---------------------------------------------------------------------- */

/* The only reader of a tensor; NULL if there are none or several. */
static net_op *only_reader(dlc_net *net, int32_t tensor) {
    net_op *reader = NULL;
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        for (int32_t j = 0; op->fused_into == NO_OP && j < op->memory.inputs; j++) {
            if (op->input[j] != tensor)
                continue;
            if (reader)
                return NULL;
            reader = op;
        }
    }
    return reader;
}

/* Is it an elementwise layer without parameters, by its capability bits and its shapes?
 */
static int may_be_fused(const net_op *op) {
    uint64_t caps = op->feature ? op->feature->caps : 0;
    int inputs = caps & DLC_LAYER_POINTWISE ? 1 : caps & DLC_LAYER_BINARY ? 2 : 0;
    return op->memory.inputs == inputs && op->memory.outputs == 1 &&
           op->memory.params == 0;
}

/* The input of a binary layer that is not the output of operation `index`; NO_OP if it
 * is computed later than that operation. */
static int32_t other_input(const dlc_net *net, const net_op *binary, int32_t index) {
    int32_t other = binary->input[binary->input[0] == net->op[index].output[0]];
    int32_t producer = net->tensor[other].producer;
    return producer < index ? other : NO_OP;
}

/* Fuses the layers that follow into this one, for as long as it accepts them. */
static dlc_status fuse_followers(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    int has_binary = 0;
    while (op->memory.outputs == 1) {
        net_op *next = only_reader(net, op->output[0]);
        if (!next || !may_be_fused(next))
            return DLC_OK;
        const dlc_graph_layer *from = &net->args.graph->layer[next->node];
        int is_binary = next->memory.inputs == 2;
        int32_t other = is_binary ? other_input(net, next, index) : NO_OP;
        if (is_binary && (other == NO_OP || has_binary))
            return DLC_OK;
        dlc_status status = op->ops->fuse(op->layer, next->feature, from->settings);
        if (status == DLC_ERR_UNSUPPORTED)
            return DLC_OK;
        if (status != DLC_OK)
            return dlc_net_blame(op, NULL, status);
        if (is_binary) {
            op->input[op->memory.inputs] = other;
            op->in[op->memory.inputs++] = net->tensor[other].tensor;
            has_binary = 1;
        }
        next->fused_into = index;
        op->output[0] = next->output[0];
        op->out[0] = next->out[0];
        net->tensor[op->output[0]].producer = index;
        dlc_debug("layer '%s' is fused into '%s'", next->name, op->name);
    }
    return DLC_OK;
}

/* ---- Gradients ------------------------------------------------------------------- */

static int has_trained_params(const net_op *op) {
    for (int32_t i = 0; i < op->memory.params; i++)
        if (net_is_trained(op, i))
            return 1;
    return 0;
}

/* Does a later operation, whose backward runs first, also compute a gradient of this
 * tensor, which operation `index` reads? */
static int shares_gradient(const dlc_net *net, int32_t index, int32_t tensor) {
    for (int32_t i = index + 1; i < net->ops; i++) {
        const net_op *other = &net->op[i];
        for (int32_t k = 0; other->fused_into == NO_OP && k < other->memory.inputs; k++)
            if (other->input[k] == tensor && other->edge[k].wanted)
                return 1;
    }
    return 0;
}

static void mark_shared_gradients(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        for (int32_t j = 0; j < op->memory.inputs; j++)
            if (op->edge[j].wanted && shares_gradient(net, i, op->input[j]))
                op->memory.shared_gradient |= 1ull << j;
    }
}

/* Does it pass on gradients? A layer without backward is where they end. */
static int has_backward(const net_op *op) {
    return net_op_runs(op) && (!op->ops || DLC_CAN(op->ops, backward));
}

/* Backward of an operation runs if a loss comes after it, and something to train at or
 * before it. */
static void trace_gradients(dlc_net *net) {
    if (net->args.phase != DLC_PHASE_TRAIN)
        return;
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        net_op *op = &net->op[i];
        if (!has_backward(op))
            continue;
        uint64_t caps = op->feature ? op->feature->caps : 0;
        op->reaches_loss |= op->boundary ? op->boundary->gradient
                                         : (caps & DLC_LAYER_LOSS) != 0;
        for (int32_t j = 0; op->reaches_loss && j < op->memory.inputs; j++) {
            int32_t producer = net->tensor[op->input[j]].producer;
            if (producer != NO_OP && !(op->shapes.no_gradient >> j & 1))
                net->op[producer].reaches_loss = 1;
        }
    }
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        if (!has_backward(op) || !op->reaches_loss)
            continue;
        int wants = has_trained_params(op);
        for (int32_t j = 0; j < op->memory.inputs; j++) {
            int wanted = net->tensor[op->input[j]].wants_gradient &&
                         !(op->shapes.no_gradient >> j & 1);
            op->edge[j].wanted = wanted;
            op->memory.wants_gradient |= (uint64_t)wanted << j;
            wants |= wanted;
        }
        op->runs_backward = wants;
        for (int32_t j = 0; j < op->memory.outputs; j++)
            net->tensor[op->output[j]].wants_gradient = wants;
    }
    mark_shared_gradients(net);
}

/* ---- The net --------------------------------------------------------------------- */

/* Room for every layer, for a reshard operation before each of its inputs, and for
 * outgoing boundary tensors. */
static dlc_status allocate_ops(dlc_net *net) {
    const dlc_graph *graph = net->args.graph;
    size_t room = (size_t)graph->layers + (size_t)net->args.boundaries_out;
    for (int32_t i = 0; net->args.tensor_parallel && i < graph->layers; i++)
        room += (size_t)graph->layer[i].inputs;
    net->op = dlc_alloc(room, sizeof *net->op);
    return net->op ? DLC_OK : DLC_ERR_NOMEM;
}

/* Creates the complete layer to ask for its number of channels, and chooses the range
 * of them that this rank computes. */
static dlc_status choose_channels(dlc_net *net, net_op *op, int64_t *begin,
                                  int64_t *end) {
    DLC_TRY(create_layer(net, op, 0, 0));
    dlc_status status = dlc_layer_infer(op, net->args.phase == DLC_PHASE_TRAIN);
    int64_t channels = op->out[0].shape.rank > 1 ? op->out[0].shape.dims[1] : 0;
    op->ops->destroy(op->layer);
    op->ops = NULL;
    op->layer = NULL;
    DLC_TRY(status);
    DLC_TRY(dlc_net_check_channels(net, op->name, channels));
    *begin = dlc_net_channel_begin(net->args.tensor_parallel, channels,
                                   net->args.tensor_parallel->rank);
    *end = dlc_net_channel_begin(net->args.tensor_parallel, channels,
                                 net->args.tensor_parallel->rank + 1);
    op->channel_begin = *begin;
    op->total_channels = channels;
    return DLC_OK;
}

static dlc_status make_layer(dlc_net *net, int32_t node) {
    const dlc_graph_layer *from = &net->args.graph->layer[node];
    int64_t begin = 0, end = 0;
    DLC_TRY(reshard_inputs(net, node));
    net_op *op = &net->op[net->ops++];
    DLC_TRY(dlc_net_allocate_op(op, from->inputs));
    op->node = node;
    op->name = from->name;
    op->feature = from->feature;
    op->frozen = from->frozen;
    op->all_samples = dlc_net_input_placement(net, node) != SAMPLE_SHARDED;
    op->block_rows = dlc_net_block_rows(net, op);
    DLC_TRY(find_inputs(net, op));
    if (dlc_net_is_tensor_parallel(net, node))
        DLC_TRY(choose_channels(net, op, &begin, &end));
    DLC_TRY(create_layer(net, op, begin, end));
    DLC_TRY(infer_layer(net, net->ops - 1));
    DLC_TRY(dlc_net_check_chunks(net, op));
    return op->total_channels ? dlc_net_check_channel_shapes(op, end - begin) : DLC_OK;
}

/* Is the layer free of mistakes, and is everything that it reads in the net? */
static int is_sound(const dlc_net *net, int32_t node) {
    const dlc_graph_layer *layer = &net->args.graph->layer[node];
    for (int32_t i = 0; !layer->broken && i < layer->inputs; i++) {
        int32_t from = layer->input[i].layer;
        if (from != DLC_FROM_DATA && !dlc_net_op_of_node(net, from))
            return 0;
    }
    return !layer->broken;
}

static int can_infer_without_device(const dlc_family *family) {
    return DLC_HAS(family, infers_without_device) && family->infers_without_device;
}

/* Makes a layer of an outline. If its shapes do not fit, that is reported and the layer
 * is left out. */
static dlc_status try_layer(dlc_net *net, int32_t node) {
    int32_t ops = net->ops;
    void *context;
    if (!is_sound(net, node))
        return DLC_OK;
    const dlc_layer_ops *table = net->args.graph->layer[node].feature->ops;
    if (!net->args.device && !can_infer_without_device(table->family))
        return DLC_OK;
    DLC_TRY(open_family(net, table->family, &context)); /* no mistake of this layer */
    dlc_status status = make_layer(net, node);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    net->args.on_misfit(net->args.misfit_context, node, status);
    while (net->ops > ops) {
        net_op *op = &net->op[--net->ops];
        dlc_net_op_free(op);
        *op = (net_op){.node = NO_OP};
    }
    return DLC_OK;
}

dlc_status dlc_net_make_layers(dlc_net *net) {
    const dlc_graph *graph = net->args.graph;
    int32_t end = net->args.end ? net->args.end : graph->layers;
    DLC_TRY(dlc_net_chunks_open(net));
    DLC_TRY(add_batch_tensors(net));
    DLC_TRY(allocate_ops(net));
    for (int32_t node = net->args.first; node < end; node++)
        if (graph->layer[node].phases & (unsigned)net->args.phase)
            DLC_TRY(net->args.on_misfit ? try_layer(net, node) : make_layer(net, node));
    for (int32_t i = 0; i < net->args.boundaries_out; i++) {
        net_op *op = &net->op[net->ops++];
        DLC_TRY(dlc_net_add_boundary_op(net, op, &net->args.boundary_out[i]));
    }
    for (int32_t i = 0; i < net->ops && !net->args.outline; i++)
        if (net->op[i].fused_into == NO_OP && DLC_CAN(net->op[i].ops, fuse))
            DLC_TRY(fuse_followers(net, i));
    trace_gradients(net);
    return DLC_OK;
}
