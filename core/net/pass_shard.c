/* The pass `shard`: places tensors among the ranks that share tensor-parallel layers
 * (placement.h). Where a reader needs another placement than the writer gives, a
 * reshard operation is inserted. */
#include "net/layer.h"
#include "net/ops.h"
#include "net/passes.h"

static int reads(const dlc_graph_layer *reader, int32_t node) {
    for (int32_t i = 0; i < reader->inputs; i++)
        if (reader->input[i].layer == node)
            return 1;
    return 0;
}

/* Is a layer in another pipeline stage? */
static int is_elsewhere(const dlc_net *net, int32_t node) {
    return net->args.end && (node < net->args.first || node >= net->args.end);
}

/* Do only tensor-parallel layers read its output, directly or through light layers?
 * Other stages get it as the samples of this rank. */
static int leads_to_parallel(const dlc_net *net, int32_t node) {
    const dlc_graph *graph = net->args.graph;
    int any = 0;
    for (int32_t i = node + 1; i < graph->layers; i++) {
        const dlc_graph_layer *reader = &graph->layer[i];
        if (!(reader->phases & (unsigned)net->args.phase) || !reads(reader, node))
            continue;
        if (is_elsewhere(net, i) ||
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
