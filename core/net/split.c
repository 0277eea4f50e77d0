/* See split.h. This file decides and builds; spread.c moves the numbers. */
#include "net/split.h"

#include "net/portions.h"

#include "base/memory.h"

int dlc_net_is_split(const dlc_net *net, int32_t node) {
    return net->args.split && net->args.split->layers[node];
}

int64_t dlc_net_cut(const dlc_net_split *split, int64_t channels, int32_t rank) {
    const int64_t *cut = split->cut, whole = cut[split->ranks] - cut[0];
    int64_t at = 0;
    for (int32_t r = 1; r <= rank; r++) {
        int64_t most = channels - (split->ranks - r);
        int64_t next = channels * (cut[r] - cut[0]) / whole;
        at = next > at ? next : at + 1;
        at = at < most ? at : most;
    }
    return at;
}

dlc_status dlc_net_check_slices(const dlc_net *net, const char *name,
                                int64_t channels) {
    const dlc_net_split *split = net->args.split;
    int64_t whole = split->cut[split->ranks] - split->cut[0];
    if (channels < split->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': its %lld channels cannot be shared out among %d "
                        "ranks; take parallel = data",
                        name, (long long)channels, (int)split->ranks);
    if (whole < 1 || channels > INT64_MAX / whole)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': it has more channels than can be counted", name);
    return DLC_OK;
}

dlc_status dlc_net_check_sliced(const net_op *op, int64_t channels) {
    int ok = op->plan.outputs == 1 && op->out[0].shape.rank > 1 &&
             op->out[0].shape.dims[1] == channels;
    for (int32_t i = 0; ok && i < op->plan.params; i++)
        ok = !(op->param[i].flags & DLC_PARAM_BUFFER) && op->param[i].shape.rank > 0 &&
             op->param[i].shape.dims[0] == channels;
    if (ok)
        return DLC_OK;
    return dlc_fail(DLC_ERR_PLUGIN,
                    "layer '%s': type '%s' was asked for %lld channels and plans "
                    "something else",
                    op->name, op->feature->name, (long long)channels);
}

/* ---- What reads what ------------------------------------------------------------- */

static int reads(const dlc_graph_layer *reader, int32_t node) {
    for (int32_t i = 0; i < reader->inputs; i++)
        if (reader->input[i].layer == node)
            return 1;
    return 0;
}

/* May it be given the samples of all ranks? */
static int is_light(const dlc_graph_layer *layer) {
    return layer->inputs == 1 &&
           (layer->feature->caps & (DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE)) != 0;
}

/* Is all that reads it a split layer, or on the way to nothing else? */
static int leads_to_split(const dlc_net *net, int32_t node) {
    const dlc_graph *graph = net->args.graph;
    int any = 0;
    for (int32_t i = node + 1; i < graph->layers; i++) {
        const dlc_graph_layer *reader = &graph->layer[i];
        if (!(reader->phases & (unsigned)net->args.phase) || !reads(reader, node))
            continue;
        if (!dlc_net_is_split(net, i) && !(is_light(reader) && leads_to_split(net, i)))
            return 0;
        any = 1;
    }
    return any;
}

static net_spread spread_of_input(const dlc_net *net, const dlc_graph_layer *layer) {
    dlc_graph_input input = layer->input[0];
    for (int32_t i = 0; input.layer != DLC_FROM_DATA && i < net->ops; i++)
        if (net->op[i].node == input.layer)
            return net->tensor[net->op[i].output[0]].spread;
    return SPREAD_OWN;
}

net_spread dlc_net_reads(const dlc_net *net, int32_t node) {
    const dlc_graph_layer *layer = &net->args.graph->layer[node];
    if (!net->args.split)
        return SPREAD_OWN;
    if (dlc_net_is_split(net, node))
        return SPREAD_WHOLE;
    if (!is_light(layer))
        return SPREAD_OWN;
    net_spread given = spread_of_input(net, layer);
    if (given == SPREAD_SLICED && layer->feature->caps & DLC_LAYER_POINTWISE)
        return SPREAD_SLICED;
    return given != SPREAD_OWN && leads_to_split(net, node) ? SPREAD_WHOLE : SPREAD_OWN;
}

/* ---- Exchanges ------------------------------------------------------------------- */

static const net_op *find_exchange(const dlc_net *net, int32_t tensor,
                                   net_spread spread) {
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = &net->op[i];
        if (op->exchange && op->input[0] == tensor && op->exchange->to == spread)
            return op;
    }
    return NULL;
}

static const char *tensor_name(const dlc_net *net, int32_t tensor) {
    int32_t producer = net->tensor[tensor].producer;
    return producer == NO_OP ? "the batch" : net->op[producer].name;
}

static int64_t rows_here(const dlc_net *net, net_spread spread, int of_portion) {
    const dlc_net_split *split = net->args.split;
    const int64_t *first = split->first;
    if (of_portion)
        return spread == SPREAD_OWN ? net->portions.own_rows : net->portions.rows;
    return spread == SPREAD_OWN ? first[split->rank + 1] - first[split->rank]
                                : first[split->ranks] - first[0];
}

static dlc_status check_tensor(const dlc_net *net, int32_t tensor) {
    const net_tensor *from = &net->tensor[tensor];
    const dlc_shape *shape = &from->tensor.shape;
    if (from->tensor.dtype == DLC_I32 || shape->rank < 1 ||
        shape->dims[0] != rows_here(net, from->spread, from->of_portion))
        return dlc_fail(DLC_ERR_CONFIG,
                        "what '%s' gives has no sample in each of its rows, so that no "
                        "layer that reads it can be split; leave out parallel = tensor",
                        tensor_name(net, tensor));
    return DLC_OK;
}

/* Its shape over all ranks. */
static void measure(const dlc_net *net, const net_tensor *from,
                    net_exchange *exchange) {
    const dlc_shape *shape = &from->tensor.shape;
    exchange->samples = rows_here(net, SPREAD_WHOLE, exchange->of_portion);
    exchange->channels = from->spread == SPREAD_SLICED ? from->channels
                         : shape->rank > 1             ? shape->dims[1]
                                                       : 1;
    exchange->spatial = 1;
    for (int32_t i = 2; i < shape->rank; i++)
        exchange->spatial *= shape->dims[i];
}

static dlc_status make_exchange(const dlc_net *net, int32_t tensor, net_spread spread,
                                int of_portion, net_exchange **exchange) {
    size_t ranks = (size_t)net->args.split->ranks;
    net_exchange *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->from = net->tensor[tensor].spread;
    made->to = spread;
    made->of_portion = of_portion;
    measure(net, &net->tensor[tensor], made);
    made->name = dlc_format("%s of %s",
                            made->from == SPREAD_OWN ? "gathering" : "exchange",
                            tensor_name(net, tensor));
    made->request = dlc_alloc(2 * ranks, sizeof(dlc_request *));
    made->source = dlc_alloc(ranks, sizeof *made->source);
    made->pack = dlc_alloc(ranks, sizeof *made->pack);
    if (!made->name || !made->request || !made->source || !made->pack) {
        dlc_net_exchange_free(made);
        return DLC_ERR_NOMEM;
    }
    *exchange = made;
    return DLC_OK;
}

void dlc_net_exchange_free(net_exchange *exchange) {
    if (!exchange)
        return;
    dlc_free(exchange->pack);
    dlc_free(exchange->source);
    dlc_free(exchange->request);
    dlc_free(exchange->name);
    dlc_free(exchange);
}

/* An operation of no layer; the caller has the room. */
static dlc_status add_exchange(dlc_net *net, int32_t tensor, net_spread spread,
                               int of_portion) {
    net_op *op = &net->op[net->ops++];
    DLC_TRY(dlc_net_allocate_op(op, 1));
    op->node = NO_OP;
    DLC_TRY(make_exchange(net, tensor, spread, of_portion, &op->exchange));
    op->name = op->exchange->name;
    op->input[0] = tensor;
    op->in[0] = op->out[0] = (dlc_tensor){.shape = net->tensor[tensor].tensor.shape,
                                          .dtype = DLC_F32};
    op->out[0].shape.dims[0] = rows_here(net, spread, of_portion);
    if (op->out[0].shape.rank > 1)
        op->out[0].shape.dims[1] = op->exchange->channels;
    op->plan.scratch_bytes = dlc_net_exchange_scratch(net, op->exchange);
    int32_t added = dlc_net_tensor_add(net, &op->out[0], net->ops - 1);
    if (added < 0)
        return added;
    op->output[0] = added;
    net->tensor[added].spread = spread;
    net->tensor[added].of_portion = of_portion;
    return DLC_OK;
}

dlc_status dlc_net_bring(dlc_net *net, int32_t tensor, net_spread spread, int32_t node,
                         int32_t *result) {
    int of_portion = dlc_net_in_group(net, node);
    if (net->tensor[tensor].spread == spread) {
        *result = tensor;
        return DLC_OK;
    }
    const net_op *found = find_exchange(net, tensor, spread);
    if (net->tensor[tensor].spread == SPREAD_WHOLE)
        return dlc_fail(DLC_ERR_INTERNAL, "'%s' works on the samples of all ranks",
                        tensor_name(net, tensor));
    if (!found) {
        DLC_TRY(check_tensor(net, tensor));
        DLC_TRY(add_exchange(net, tensor, spread, of_portion));
        found = &net->op[net->ops - 1];
    }
    *result = found->output[0];
    return DLC_OK;
}
