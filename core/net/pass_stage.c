/* The pass `stage`: takes the part of the graph that this rank's net is made of. It
 * adds the tensors of the batch and of the stage's boundary, an operation for each
 * layer, and one for each tensor that goes to another stage. Nothing has a shape yet
 * but what comes from outside. */
#include <string.h>

#include "base/memory.h"
#include "net/ops.h"
#include "net/passes.h"

/* Adds a tensor of so many samples of a field. */
static dlc_status add_field(dlc_net *net, const dlc_net_field *field, int64_t samples,
                            int32_t *added) {
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
        DLC_TRY(add_field(net, &fields->field[i], net->args.batch, &added));
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
        DLC_TRY(
            add_field(net, &fields->field[i], chunks->local_rows, &chunks->label[i]));
        net->tensor[chunks->label[i]].in_chunk = 1;
    }
    return DLC_OK;
}

/* The tensor that comes from another stage; NO_TENSOR if it does not. */
static int32_t incoming(const dlc_net *net, dlc_graph_input input) {
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
    *tensor = producer ? NO_TENSOR : incoming(net, from);
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

static dlc_status add_layer(dlc_net *net, int32_t node) {
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
            DLC_TRY(add_layer(net, node));
    for (int32_t i = 0; i < net->args.boundaries_out; i++)
        DLC_TRY(add_outgoing(net, i));
    return DLC_OK;
}
