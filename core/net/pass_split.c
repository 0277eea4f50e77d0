/* The passes that take the part of the graph that this rank computes: stage and shard.
 */
#include <string.h>

#include "base/memory.h"
#include "net/ops.h"

/* ---- The pass `stage` ------------------------------------------------------------ */

/* Takes the part of the graph that this rank's net is made of. It adds the tensors of
 * the batch and of the stage's boundary, an operation for each layer, and one for each
 * tensor that goes to another stage. Nothing has a shape yet but what comes from
 * outside. */

/* Adds a tensor of so many samples of a field. */
static dlc_status add_field_tensor(dlc_net *net, const dlc_net_field *field,
                                   int64_t samples, int32_t *added) {
    dlc_tensor tensor = {.dtype = field->dtype, .shape.rank = field->shape.rank + 1};
    tensor.shape.dims[0] = samples;
    memcpy(&tensor.shape.dims[1], field->shape.dims,
           (size_t)field->shape.rank * sizeof(int64_t));
    return dlc_net_tensor_add(net, &tensor, NULL, added);
}

static dlc_status add_batch(dlc_net *net) {
    const dlc_net_fields *fields = &net->args.fields;
    int32_t added;
    for (int32_t i = 0; i < fields->count; i++)
        DLC_TRY(add_field_tensor(net, &fields->field[i], net->args.batch, &added));
    return DLC_OK;
}

static dlc_status add_boundary_tensor(dlc_net *net, const dlc_net_boundary *boundary) {
    dlc_tensor tensor = {.dtype = boundary->dtype, .shape = boundary->shape};
    int32_t added;
    DLC_TRY(dlc_net_tensor_add(net, &tensor, NULL, &added));
    net->tensor[added].is_boundary = 1;
    return DLC_OK;
}

static dlc_status add_boundary_tensors(dlc_net *net) {
    const dlc_net_args *args = &net->args;
    for (int32_t i = 0; i < args->boundaries_in; i++) {
        DLC_TRY(add_boundary_tensor(net, &args->boundary_in[i]));
        net->tensor[net_boundary_in(net, i)].wants_gradient =
            args->boundary_in[i].gradient && net_is_training(net);
    }
    for (int32_t i = 0; i < args->boundaries_out; i++)
        DLC_TRY(add_boundary_tensor(net, &args->boundary_out[i]));
    return DLC_OK;
}

/* With batch chunks, the labels of this rank's rows of a chunk. */
static dlc_status add_chunk_labels(dlc_net *net) {
    const dlc_net_fields *fields = &net->args.fields;
    net_chunks *chunks = &net->chunks;
    DLC_TRY(dlc_net_chunks_open(chunks, &net->args));
    for (int32_t i = 0; i < fields->count; i++) {
        chunks->label[i] = NO_TENSOR;
        if (chunks->count == 0 || !fields->field[i].is_label)
            continue;
        DLC_TRY(add_field_tensor(net, &fields->field[i], chunks->local_rows,
                                 &chunks->label[i]));
        net->tensor[chunks->label[i]].in_chunk = 1;
    }
    return DLC_OK;
}

/* The tensor that comes from another stage; NO_TENSOR if it does not. */
static int32_t incoming_tensor(const dlc_net *net, dlc_graph_input input) {
    for (int32_t i = 0; i < net->args.boundaries_in; i++)
        if (net->args.boundary_in[i].layer == input.layer &&
            net->args.boundary_in[i].output == input.output)
            return net_boundary_in(net, i);
    return NO_TENSOR;
}

/* Finds the tensor of a layer's output. One that does not exist, since the layer is not
 * here or has fewer outputs, is a tensor that never gets a shape: `infer` reports it.
 */
static dlc_status find_output(dlc_net *net, dlc_graph_input from, int32_t *tensor) {
    net_op *producer = dlc_net_op_of_node(net, from.layer);
    *tensor = producer ? NO_TENSOR : incoming_tensor(net, from);
    if (*tensor != NO_TENSOR)
        return DLC_OK;
    if (!producer)
        return dlc_net_tensor_add(net, NULL, NULL, tensor);
    if (from.output >= DLC_MAX_OUTPUTS) {
        if (producer->beyond == NO_TENSOR)
            DLC_TRY(dlc_net_tensor_add(net, NULL, producer, &producer->beyond));
        *tensor = producer->beyond;
        return DLC_OK;
    }
    DLC_TRY(dlc_net_output_add(net, producer, from.output));
    *tensor = producer->output[from.output];
    return DLC_OK;
}

static dlc_status find_input(dlc_net *net, int32_t node, dlc_graph_input from,
                             int32_t *tensor) {
    if (from.layer != DLC_FROM_DATA)
        return find_output(net, from, tensor);
    int is_chunked = dlc_net_is_chunked(&net->chunks, node) &&
                     net->chunks.label[from.output] != NO_TENSOR;
    *tensor = is_chunked ? net->chunks.label[from.output] : from.output;
    return DLC_OK;
}

static dlc_status add_node(dlc_net *net, int32_t node) {
    const dlc_graph_layer *from = &net->args.graph->layer[node];
    net_op *op = NULL;
    if (from->broken) /* only an outline is made of a graph with mistakes */
        return DLC_OK;
    DLC_TRY(dlc_net_add_layer(net, node, &op));
    for (int32_t i = 0; i < from->inputs; i++)
        DLC_TRY(find_input(net, node, from->input[i], &op->input[i]));
    return dlc_net_output_add(net, op, 0);
}

static dlc_status add_outgoing(dlc_net *net, int32_t i) {
    const dlc_net_boundary *boundary = &net->args.boundary_out[i];
    dlc_graph_input from = {boundary->layer, boundary->output};
    int32_t tensor;
    DLC_TRY(find_output(net, from, &tensor));
    return dlc_net_add_boundary(net, i, tensor);
}

dlc_status dlc_net_pass_stage(dlc_net *net) {
    const dlc_graph *graph = net->args.graph;
    int32_t end = net->args.end ? net->args.end : graph->layers;
    net->of_node = dlc_alloc((size_t)graph->layers, sizeof(net_op *));
    if (!net->of_node)
        return DLC_ERR_NOMEM;
    DLC_TRY(add_batch(net));
    DLC_TRY(add_boundary_tensors(net));
    DLC_TRY(add_chunk_labels(net));
    for (int32_t node = net->args.first; node < end; node++)
        if (graph->layer[node].phases & (unsigned)net->args.phase &&
            (!net->args.layers || net->args.layers[node]))
            DLC_TRY(add_node(net, node));
    for (int32_t i = 0; i < net->args.boundaries_out; i++)
        DLC_TRY(add_outgoing(net, i));
    return DLC_OK;
}

/* ---- The pass `shard` ------------------------------------------------------------ */

/* Places tensors among the ranks that share tensor-parallel layers (placement.h). Where
 * a reader needs another placement than the writer gives, a reshard operation is
 * inserted.
 */

static int reads_node(const dlc_graph_layer *reader, int32_t node) {
    for (int32_t i = 0; i < reader->inputs; i++)
        if (reader->input[i].layer == node)
            return 1;
    return 0;
}

/* Is a layer in another pipeline stage? */
static int is_in_other_stage(const dlc_net *net, int32_t node) {
    return net->args.end && (node < net->args.first || node >= net->args.end);
}

/* Do only tensor-parallel layers read its output, directly or through light layers?
 * Other stages get it as the samples of this rank. */
static int leads_to_parallel(const dlc_net *net, int32_t node) {
    const dlc_graph *graph = net->args.graph;
    int any = 0;
    for (int32_t i = node + 1; i < graph->layers; i++) {
        const dlc_graph_layer *reader = &graph->layer[i];
        if (!(reader->phases & (unsigned)net->args.phase) || !reads_node(reader, node))
            continue;
        if (is_in_other_stage(net, i) ||
            (!dlc_net_is_tensor_parallel(net->args.tensor_parallel, i) &&
             !(dlc_net_is_light(reader) && leads_to_parallel(net, i))))
            return 0;
        any = 1;
    }
    return any;
}

/* The placement in which a layer reads its inputs. */
static net_placement reads_in(const dlc_net *net, const net_op *op) {
    const dlc_graph_layer *layer = &net->args.graph->layer[op->node];
    if (dlc_net_is_tensor_parallel(net->args.tensor_parallel, op->node))
        return REPLICATED;
    if (!dlc_net_is_light(layer))
        return SAMPLE_SHARDED;
    net_placement given = net->tensor[op->input[0]].placement;
    if (given == CHANNEL_SHARDED && layer->feature->caps & DLC_LAYER_POINTWISE)
        return CHANNEL_SHARDED;
    return given != SAMPLE_SHARDED && leads_to_parallel(net, op->node) ? REPLICATED
                                                                       : SAMPLE_SHARDED;
}

/* The output of a tensor-parallel layer is channel-sharded; other layers keep the
 * placement of their input. */
static dlc_status shard_layer(dlc_net *net, net_op *op) {
    net_placement reads = reads_in(net, op), writes = reads;
    int in_chunk = dlc_net_is_chunked(&net->chunks, op->node);
    if (dlc_net_is_tensor_parallel(net->args.tensor_parallel, op->node))
        writes = CHANNEL_SHARDED;
    for (int32_t i = 0; i < op->memory.inputs; i++)
        DLC_TRY(dlc_net_reshard_input(net, op, i, reads, in_chunk));
    ((net_layer *)op)->all_samples = reads != SAMPLE_SHARDED;
    for (int32_t i = 0; i < DLC_MAX_OUTPUTS; i++) {
        if (op->output[i] == NO_TENSOR)
            continue;
        net->tensor[op->output[i]].placement = writes;
        net->tensor[op->output[i]].in_chunk = in_chunk;
    }
    return DLC_OK;
}

dlc_status dlc_net_pass_shard(dlc_net *net) {
    for (int32_t i = 0; net->args.tensor_parallel && i < net->ops; i++) {
        net_op *op = net->op[i];
        DLC_TRY(op->node == NO_NODE /* it sends to another stage */
                    ? dlc_net_reshard_input(net, op, 0, SAMPLE_SHARDED, 0)
                    : shard_layer(net, op));
        i = op->index;
    }
    return DLC_OK;
}
