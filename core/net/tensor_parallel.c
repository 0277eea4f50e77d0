/* Decides placements and inserts reshard operations; reshard.c runs them. */
#include "net/tensor_parallel.h"

#include "net/batch_chunks.h"

#include "base/memory.h"

int dlc_net_is_tensor_parallel(const dlc_net *net, int32_t node) {
    return net->args.tensor_parallel && net->args.tensor_parallel->layers[node];
}

int64_t dlc_net_channel_begin(const dlc_net_tensor_parallel *tp, int64_t channels,
                              int32_t rank) {
    const int64_t *cut = tp->channel_share, whole = cut[tp->ranks] - cut[0];
    int64_t at = 0;
    for (int32_t r = 1; r <= rank; r++) {
        int64_t most = channels - (tp->ranks - r);
        int64_t next = channels * (cut[r] - cut[0]) / whole;
        at = next > at ? next : at + 1;
        at = at < most ? at : most;
    }
    return at;
}

dlc_status dlc_net_check_channels(const dlc_net *net, const char *name,
                                  int64_t channels) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    int64_t whole = tp->channel_share[tp->ranks] - tp->channel_share[0];
    if (channels < tp->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': its %lld channels cannot be split among %d ranks; "
                        "use parallel = data",
                        name, (long long)channels, (int)tp->ranks);
    if (whole < 1 || channels > INT64_MAX / whole)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': the number of channels is too large", name);
    return DLC_OK;
}

dlc_status dlc_net_check_channel_shapes(const net_op *op, int64_t channels) {
    int ok = op->memory.outputs == 1 && op->out[0].shape.rank > 1 &&
             op->out[0].shape.dims[1] == channels;
    for (int32_t i = 0; ok && i < op->memory.params; i++)
        ok = !(op->param[i].flags & DLC_PARAM_BUFFER) && op->param[i].shape.rank > 0 &&
             op->param[i].shape.dims[0] == channels;
    if (ok)
        return DLC_OK;
    return dlc_fail(DLC_ERR_PLUGIN,
                    "layer '%s': type '%s' was asked for %lld channels, but infers "
                    "a different shape",
                    op->name, op->feature->name, (long long)channels);
}

/* ---- Placements ------------------------------------------------------------------ */

static int reads(const dlc_graph_layer *reader, int32_t node) {
    for (int32_t i = 0; i < reader->inputs; i++)
        if (reader->input[i].layer == node)
            return 1;
    return 0;
}

/* Is it cheap enough to be computed by every rank for the samples of all ranks? */
static int is_light(const dlc_graph_layer *layer) {
    return layer->inputs == 1 &&
           (layer->feature->caps & (DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE)) != 0;
}

/* Do only tensor-parallel layers read its output, directly or through light layers? */
static int leads_to_parallel(const dlc_net *net, int32_t node) {
    const dlc_graph *graph = net->args.graph;
    int any = 0;
    for (int32_t i = node + 1; i < graph->layers; i++) {
        const dlc_graph_layer *reader = &graph->layer[i];
        if (!(reader->phases & (unsigned)net->args.phase) || !reads(reader, node))
            continue;
        if (!dlc_net_is_tensor_parallel(net, i) &&
            !(is_light(reader) && leads_to_parallel(net, i)))
            return 0;
        any = 1;
    }
    return any;
}

static net_placement placement_of_input(const dlc_net *net,
                                        const dlc_graph_layer *layer) {
    dlc_graph_input input = layer->input[0];
    for (int32_t i = 0; input.layer != DLC_FROM_DATA && i < net->ops; i++)
        if (net->op[i].node == input.layer)
            return net->tensor[net->op[i].output[0]].placement;
    return SAMPLE_SHARDED;
}

net_placement dlc_net_input_placement(const dlc_net *net, int32_t node) {
    const dlc_graph_layer *layer = &net->args.graph->layer[node];
    if (!net->args.tensor_parallel)
        return SAMPLE_SHARDED;
    if (dlc_net_is_tensor_parallel(net, node))
        return REPLICATED;
    if (!is_light(layer))
        return SAMPLE_SHARDED;
    net_placement given = placement_of_input(net, layer);
    if (given == CHANNEL_SHARDED && layer->feature->caps & DLC_LAYER_POINTWISE)
        return CHANNEL_SHARDED;
    return given != SAMPLE_SHARDED && leads_to_parallel(net, node) ? REPLICATED
                                                                   : SAMPLE_SHARDED;
}

/* ---- Reshard operations ---------------------------------------------------------- */

static const net_op *find_reshard(const dlc_net *net, int32_t tensor,
                                  net_placement placement) {
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = &net->op[i];
        if (op->reshard && op->input[0] == tensor && op->reshard->to == placement)
            return op;
    }
    return NULL;
}

static const char *tensor_name(const dlc_net *net, int32_t tensor) {
    int32_t producer = net->tensor[tensor].producer;
    return producer == NO_OP ? "the batch" : net->op[producer].name;
}

static int64_t rows_here(const dlc_net *net, net_placement placement, int in_chunk) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    const int64_t *first = tp->first_sample;
    if (in_chunk)
        return placement == SAMPLE_SHARDED ? net->chunks.local_rows : net->chunks.rows;
    return placement == SAMPLE_SHARDED ? first[tp->rank + 1] - first[tp->rank]
                                       : first[tp->ranks] - first[0];
}

static dlc_status check_tensor(const dlc_net *net, int32_t tensor) {
    const net_tensor *from = &net->tensor[tensor];
    const dlc_shape *shape = &from->tensor.shape;
    if (from->tensor.dtype == DLC_I32 || shape->rank < 1 ||
        shape->dims[0] != rows_here(net, from->placement, from->in_chunk))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "the output of '%s' does not have one sample per row, so layers "
            "that read it cannot use parallel = tensor",
            tensor_name(net, tensor));
    return DLC_OK;
}

/* Sets the tensor's shape over all ranks. */
static void measure(const dlc_net *net, const net_tensor *from, net_reshard *reshard) {
    const dlc_shape *shape = &from->tensor.shape;
    reshard->samples = rows_here(net, REPLICATED, reshard->in_chunk);
    reshard->channels = from->placement == CHANNEL_SHARDED ? from->channels
                        : shape->rank > 1                  ? shape->dims[1]
                                                           : 1;
    reshard->spatial = 1;
    for (int32_t i = 2; i < shape->rank; i++)
        reshard->spatial *= shape->dims[i];
}

static dlc_status make_reshard(const dlc_net *net, int32_t tensor,
                               net_placement placement, int in_chunk,
                               net_reshard **reshard) {
    size_t ranks = (size_t)net->args.tensor_parallel->ranks;
    net_reshard *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->from = net->tensor[tensor].placement;
    made->to = placement;
    made->in_chunk = in_chunk;
    measure(net, &net->tensor[tensor], made);
    made->name = dlc_format("%s of %s",
                            made->from == SAMPLE_SHARDED ? "all-gather" : "reshard",
                            tensor_name(net, tensor));
    made->received = dlc_alloc(ranks, sizeof *made->received);
    made->source = dlc_alloc(ranks, sizeof *made->source);
    made->pack = dlc_alloc(ranks, sizeof *made->pack);
    if (!made->name || !made->received || !made->source || !made->pack) {
        dlc_net_reshard_free(made);
        return DLC_ERR_NOMEM;
    }
    *reshard = made;
    return DLC_OK;
}

void dlc_net_reshard_free(net_reshard *reshard) {
    if (!reshard)
        return;
    dlc_free(reshard->pack);
    dlc_free(reshard->source);
    dlc_free(reshard->received);
    dlc_free(reshard->name);
    dlc_free(reshard);
}

/* Adds the operation; the caller has made room for it. */
static dlc_status add_reshard(dlc_net *net, int32_t tensor, net_placement placement,
                              int in_chunk) {
    net_op *op = &net->op[net->ops++];
    DLC_TRY(dlc_net_allocate_op(op, 1));
    op->node = NO_OP;
    DLC_TRY(make_reshard(net, tensor, placement, in_chunk, &op->reshard));
    op->name = op->reshard->name;
    op->input[0] = tensor;
    op->in[0] = op->out[0] = (dlc_tensor){.shape = net->tensor[tensor].tensor.shape,
                                          .dtype = DLC_F32};
    op->out[0].shape.dims[0] = rows_here(net, placement, in_chunk);
    if (op->out[0].shape.rank > 1)
        op->out[0].shape.dims[1] = op->reshard->channels;
    op->memory.scratch_bytes = dlc_net_reshard_scratch(net, op->reshard);
    int32_t added = dlc_net_tensor_add(net, &op->out[0], net->ops - 1);
    if (added < 0)
        return added;
    op->output[0] = added;
    net->tensor[added].placement = placement;
    net->tensor[added].in_chunk = in_chunk;
    return DLC_OK;
}

dlc_status dlc_net_reshard_to(dlc_net *net, int32_t tensor, net_placement placement,
                              int32_t node, int32_t *result) {
    int in_chunk = dlc_net_is_chunked(net, node);
    if (net->tensor[tensor].placement == placement) {
        *result = tensor;
        return DLC_OK;
    }
    const net_op *found = find_reshard(net, tensor, placement);
    if (net->tensor[tensor].placement == REPLICATED)
        return dlc_fail(DLC_ERR_INTERNAL, "'%s' works on the samples of all ranks",
                        tensor_name(net, tensor));
    if (!found) {
        DLC_TRY(check_tensor(net, tensor));
        DLC_TRY(add_reshard(net, tensor, placement, in_chunk));
        found = &net->op[net->ops - 1];
    }
    *result = found->output[0];
    return DLC_OK;
}
