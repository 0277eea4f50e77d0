/* A layer: made by its plugin when its shapes are inferred, and run on the memory that
 * the plan gives it. Where it depends on the positions of samples, but gets rows of
 * several ranks, it is run block by block, each of consecutive samples. */
#include <string.h>

#include "base/memory.h"
#include "net/ops.h"
#include "plugin/answers.h"

/* ---- infer ----------------------------------------------------------------------- */

/* Opens a family for its first layer in this net. */
dlc_status dlc_net_open_family(dlc_net *net, net_op *op) {
    const dlc_family *family = op->family;
    for (int32_t i = 0; i < net->families; i++) {
        if (net->family[i].family == family) {
            op->context = net->family[i].context;
            return DLC_OK;
        }
    }
    net_family *grown = dlc_grow_by_one(net->family, (size_t)net->families,
                                        sizeof *grown);
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
    DLC_TRY(DLC_ASK(family, "open", family->open(&args, &op->context)));
    net->family[net->families++] = (net_family){family, op->context};
    return DLC_OK;
}

/* Creates channels [begin, end) of a tensor-parallel layer, or all if both are 0. */
static dlc_status create_layer(const dlc_net *net, net_layer *layer, int64_t begin,
                               int64_t end) {
    const dlc_graph_layer *from = layer->from;
    int32_t node = layer->op.node;
    net_op *trained = dlc_net_op_of_node(net->args.train_net, node);
    dlc_layer_args args = {
        .size = sizeof args,
        .name = from->name,
        .settings = from->settings,
        .context = layer->op.context,
        .phase = net->args.phase,
        .train_layer = trained ? ((net_layer *)trained)->layer : NULL,
        .seed = net->args.seed,
        .index = (uint32_t)node,
        .channel_begin = begin,
        .channel_end = end,
        .plain_params = net->args.plain_params && net->args.plain_params[node],
        .frozen = from->frozen,
        .group = layer->all_samples ? NULL : net->args.group};
    dlc_status status = DLC_ASK(layer->calls, "create",
                                layer->calls->create(&args, &layer->layer));
    if (status == DLC_OK && !layer->layer)
        status = dlc_answer_refuse(from->feature, "create returned no layer");
    return status == DLC_OK ? DLC_OK : dlc_net_blame(&layer->op, NULL, status);
}

/* The rows per block: 0 unless it depends on the positions of samples and gets those of
 * several ranks. */
static int64_t block_rows(const net_chunks *chunks, const net_layer *layer) {
    uint64_t caps = layer->op.caps;
    int knows = caps & DLC_LAYER_SAMPLEWISE && !(caps & DLC_LAYER_POINTWISE);
    int whole = !dlc_net_is_chunked(chunks, layer->op.node) || !layer->all_samples ||
                chunks->block == chunks->rows;
    return knows && !whole ? chunks->block : 0;
}

static dlc_status fail_without_input(const dlc_net *net, const net_layer *layer,
                                     int32_t i) {
    const dlc_graph_layer *from = layer->from;
    return dlc_fail(DLC_ERR_CONFIG,
                    "layer '%s': its input %d comes from layer '%s', which has "
                    "no such output in this phase",
                    from->name, (int)i + 1,
                    net->args.graph->layer[from->input[i].layer].name);
}

static dlc_status see_inputs(const dlc_net *net, net_layer *layer) {
    net_op *op = &layer->op;
    for (int32_t i = 0; i < op->memory.inputs; i++) {
        const net_tensor *tensor = &net->tensor[op->input[i]];
        if (!tensor->is_inferred)
            return fail_without_input(net, layer, i);
        op->in[i] = tensor->tensor;
        if (!net_knows_type(op, &op->in[i]))
            op->in[i].dtype = DLC_F32;
        if (layer->block_rows)
            op->in[i].shape.dims[0] = layer->block_rows;
    }
    return DLC_OK;
}

/* Creates the complete layer to ask for its number of channels, and chooses the range
 * of them that this rank computes. */
static dlc_status choose_channels(const dlc_net *net, net_layer *layer, int64_t *begin,
                                  int64_t *end) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    DLC_TRY(create_layer(net, layer, 0, 0));
    dlc_status status = dlc_layer_infer(layer, net_is_training(net));
    const dlc_shape *shape = &layer->op.out[0].shape;
    int64_t channels = shape->rank > 1 ? shape->dims[1] : 0;
    layer->calls->destroy(layer->layer);
    layer->layer = NULL;
    DLC_TRY(status);
    DLC_TRY(dlc_net_check_channels(tp, layer->op.name, channels));
    *begin = dlc_net_channel_begin(tp, channels, tp->rank);
    *end = dlc_net_channel_begin(tp, channels, tp->rank + 1);
    layer->channel_begin = *begin;
    layer->total_channels = channels;
    return DLC_OK;
}

/* Checks that the layer infers as many channels as it was asked for. */
static dlc_status check_channels(const net_layer *layer, int64_t channels) {
    const net_op *op = &layer->op;
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
                    op->name, layer->from->feature->name, (long long)channels);
}

static int is_plain_block(const net_layer *layer) {
    const net_op *op = &layer->op;
    return op->memory.inputs == 1 && op->memory.outputs == 1 &&
           op->memory.params == 0 && op->out[0].shape.rank > 0 &&
           op->out[0].shape.dims[0] == layer->block_rows;
}

/* Checks that a layer supports working on batch chunks. */
static dlc_status check_chunked(const dlc_net *net, const net_layer *layer) {
    const net_op *op = &layer->op;
    if (!dlc_net_is_chunked(&net->chunks, op->node))
        return DLC_OK;
    for (int32_t j = 0; j < op->memory.params; j++)
        if (op->param[j].flags & DLC_PARAM_BUFFER)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "layer '%s' needs all samples of a batch, so it cannot work on chunks of "
                "it; set [parallel] tensor_schedule = whole_batch",
                op->name);
    if (layer->block_rows && !is_plain_block(layer))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "layer '%s': type '%s' cannot process samples of several ranks; "
            "set [parallel] tensor_schedule = by_rank or whole_batch",
            op->name, layer->from->feature->name);
    return DLC_OK;
}

/* A pointwise layer may keep the channel-sharded placement of its input. */
static dlc_status give_outputs(dlc_net *net, net_layer *layer) {
    net_op *op = &layer->op;
    for (int32_t i = 0; i < op->memory.outputs; i++) {
        dlc_tensor out = op->out[i];
        if (layer->block_rows)
            out.shape.dims[0] = net->chunks.rows;
        DLC_TRY(dlc_net_output_add(net, op, i));
        dlc_net_set_shape(net, op->output[i], &out);
        net->tensor[op->output[i]].channels = layer->total_channels
                                                  ? layer->total_channels
                                                  : net->tensor[op->input[0]].channels;
    }
    return DLC_OK;
}

static dlc_status infer_layer(dlc_net *net, net_op *op) {
    net_layer *layer = (net_layer *)op;
    int is_split = dlc_net_is_tensor_parallel(net->args.tensor_parallel, op->node);
    int64_t begin = 0, end = 0;
    layer->block_rows = block_rows(&net->chunks, layer);
    op->reads_plain = layer->block_rows > 0;
    DLC_TRY(see_inputs(net, layer));
    DLC_TRY(dlc_net_open_family(net, op));
    if (is_split)
        DLC_TRY(choose_channels(net, layer, &begin, &end));
    DLC_TRY(create_layer(net, layer, begin, end));
    DLC_TRY(dlc_layer_infer(layer, net_is_training(net)));
    DLC_TRY(give_outputs(net, layer));
    DLC_TRY(check_chunked(net, layer));
    op->has_backward = DLC_CAN(layer->calls, backward);
    op->in_group = op->shapes.collective && net->args.group && !layer->all_samples;
    op->reaches_loss = (op->caps & DLC_LAYER_LOSS) != 0;
    return is_split ? check_channels(layer, end - begin) : DLC_OK;
}

/* ---- fuse and prepare ------------------------------------------------------------ */

static dlc_status fuse_layer(net_op *op, const net_op *next) {
    net_layer *layer = (net_layer *)op;
    const dlc_graph_layer *from = ((const net_layer *)next)->from;
    if (!DLC_CAN(layer->calls, fuse))
        return DLC_ERR_UNSUPPORTED;
    return layer->calls->fuse(layer->layer, from->feature, from->settings);
}

/* A private layout cannot be cut into blocks. Each block has a workspace. */
static dlc_status divide_into_blocks(const dlc_net *net, net_layer *layer) {
    net_op *op = &layer->op;
    if (op->in[0].layout || op->out[0].layout ||
        op->in[0].dtype != net->tensor[op->input[0]].tensor.dtype)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "layer '%s': type '%s' uses a private layout, which cannot hold samples of "
            "several ranks; set [parallel] tensor_schedule = by_rank or whole_batch",
            op->name, layer->from->feature->name);
    layer->block_workspace = net_align(op->memory.workspace_bytes);
    op->memory.workspace_bytes = layer->block_workspace *
                                 (size_t)(net->chunks.rows / layer->block_rows);
    return DLC_OK;
}

static dlc_status prepare_layer(dlc_net *net, net_op *op) {
    net_layer *layer = (net_layer *)op;
    if (layer->block_rows)
        op->in[0].shape.dims[0] = layer->block_rows;
    DLC_TRY(dlc_layer_prepare(layer));
    return layer->block_rows ? divide_into_blocks(net, layer) : DLC_OK;
}

/* ---- Memory ---------------------------------------------------------------------- */

/* Where backward writes the gradients of a parameter; NULL if it has none. */
static void *gradient_at(const dlc_net *net, const net_op *op, int32_t j) {
    const dlc_net_param *param = &net->param[op->first_param + j].own;
    float *gradients = net->arenas[param->set].gradients;
    if (!param->is_buffer && gradients)
        return gradients + param->offset;
    if (op->discarded_buffer == NO_BUFFER || op->param[j].flags & DLC_PARAM_BUFFER)
        return NULL;
    return (float *)dlc_net_buffer_at(net, op->discarded_buffer) +
           dlc_net_gradient_count(net, op, j);
}

/* The position in device memory is that of this rank's samples in the whole batch. */
static const dlc_step *step_at(const dlc_net *net, const net_layer *layer) {
    return layer->all_samples || net->tensor[layer->op.output[0]].in_chunk
               ? NULL
               : net->args.step_at;
}

static void point_layer(const dlc_net *net, net_op *op) {
    net_layer *layer = (net_layer *)op;
    uint64_t accumulated = 0;
    for (int32_t j = 0; j < op->memory.outputs; j++)
        layer->out_diff[j] = net->tensor[op->output[j]].diff;
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        layer->in_diff[j] = op->edge[j].target;
        accumulated |= (uint64_t)op->edge[j].accumulates << j;
    }
    for (int32_t j = 0; j < op->memory.params; j++) {
        int32_t i = op->first_param + j;
        layer->param[j] = dlc_net_param_arena(net, i) + net->param[i].own.offset;
        op->param_diff[j] = gradient_at(net, op, j);
    }
    layer->run = (dlc_layer_run){
        .size = sizeof layer->run,
        .in = layer->in_data,
        .out = layer->out_data,
        .out_diff = layer->out_diff,
        .in_diff = layer->in_diff,
        .param = layer->param,
        .param_diff = op->param_diff,
        .step_at = step_at(net, layer),
        .loss_scale_at = net->args.loss_scale_at,
        .accumulate = accumulated,
        .empty = (uint32_t)net->args.empty,
        .workspace = dlc_net_buffer_at(net, op->workspace_buffer)};
}

/* With recomputation backward may read from other buffers than forward has written. */
static void *data_of(const net_tensor *tensor, net_run kind) {
    return kind != NET_RUN_FORWARD && tensor->recompute_before ? tensor->recomputed
                                                               : tensor->data;
}

static void begin_run(const dlc_net *net, net_layer *layer, net_run kind) {
    net_op *op = &layer->op;
    for (int32_t j = 0; j < op->memory.inputs; j++)
        layer->in_data[j] = data_of(&net->tensor[op->input[j]], kind);
    for (int32_t j = 0; j < op->memory.outputs; j++)
        layer->out_data[j] = data_of(&net->tensor[op->output[j]], kind);
    layer->run.iteration = net->iteration;
    layer->run.sample = layer->all_samples ? net->all_sample : net->sample;
    layer->run.recompute = kind == NET_RUN_RECOMPUTE;
    layer->run.scratch = op->scratch[kind];
}

/* ---- Running --------------------------------------------------------------------- */

typedef dlc_status layer_call(dlc_layer *layer, const dlc_layer_run *run);

static void *behind(const void *address, size_t bytes) {
    char *at = NULL;
    if (!address)
        return NULL;
    memcpy(&at, &address, sizeof at); /* drops the const, no more */
    return at + bytes;
}

static dlc_status run_block(const net_layer *layer, dlc_layer_run run, int64_t block,
                            layer_call *call) {
    size_t at = (size_t)block;
    size_t in_bytes = at * dlc_tensor_bytes(&layer->op.in[0]);
    size_t out_bytes = at * dlc_tensor_bytes(&layer->op.out[0]);
    const void *in[1] = {behind(layer->in_data[0], in_bytes)};
    void *in_diff[1] = {behind(layer->in_diff[0], in_bytes)};
    void *out[1] = {behind(layer->out_data[0], out_bytes)};
    void *out_diff[1] = {behind(layer->out_diff[0], out_bytes)};
    run.in = in;
    run.in_diff = in_diff;
    run.out = out;
    run.out_diff = out_diff;
    run.workspace = behind(run.workspace, at * layer->block_workspace);
    return call(layer->layer, &run);
}

static dlc_status run_layer(const dlc_net *net, const net_layer *layer,
                            layer_call *call) {
    if (!layer->block_rows)
        return call(layer->layer, &layer->run);
    dlc_layer_run run = layer->run;
    for (int64_t i = 0; i * layer->block_rows < net->chunks.rows; i++) {
        run.sample = dlc_net_chunk_sample(&net->chunks, i * layer->block_rows);
        DLC_TRY(run_block(layer, run, i, call));
    }
    return DLC_OK;
}

static dlc_status layer_forward(const dlc_net *net, net_op *op, net_run kind) {
    net_layer *layer = (net_layer *)op;
    begin_run(net, layer, kind);
    return DLC_ASK(layer->calls, "forward",
                   run_layer(net, layer, layer->calls->forward));
}

static dlc_status layer_backward(const dlc_net *net, net_op *op, uint32_t parts) {
    net_layer *layer = (net_layer *)op;
    begin_run(net, layer, NET_RUN_BACKWARD);
    layer->run.backward = parts;
    layer->run.loss_scale = net->loss_scale * op->loss_share * op->chunk_share *
                            (float)layer->from->loss_weight;
    return DLC_ASK(layer->calls, "backward",
                   run_layer(net, layer, layer->calls->backward));
}

/* ---- The kind -------------------------------------------------------------------- */

static void describe_layer(const dlc_net *net, const net_op *op, dlc_net_row *row) {
    const net_layer *layer = (const net_layer *)op;
    row->type = layer->from->feature->name;
    if (!op->fused_into && !net->args.outline && DLC_CAN(layer->calls, describe))
        layer->calls->describe(layer->layer, row->choice, sizeof row->choice);
}

static void free_layer(net_op *op) {
    net_layer *layer = (net_layer *)op;
    if (layer->layer)
        layer->calls->destroy(layer->layer);
}

static const dlc_net_op_ops LAYER = {.infer = infer_layer,
                                     .fuse = fuse_layer,
                                     .prepare = prepare_layer,
                                     .point = point_layer,
                                     .forward = layer_forward,
                                     .backward = layer_backward,
                                     .describe = describe_layer,
                                     .free = free_layer};

dlc_status dlc_net_add_layer(dlc_net *net, int32_t node, net_op **op) {
    const dlc_graph_layer *from = &net->args.graph->layer[node];
    net_op *added = dlc_net_op_insert(net, net->ops, &LAYER, sizeof(net_layer),
                                      from->inputs);
    if (!added)
        return DLC_ERR_NOMEM;
    net_layer *layer = (net_layer *)added;
    layer->from = from;
    layer->calls = from->feature->ops;
    added->family = layer->calls->family;
    added->node = node;
    net->of_node[node] = added;
    added->name = from->name;
    added->caps = from->feature->caps;
    added->frozen = from->frozen;
    added->loss_share = added->chunk_share = 1;
    *op = added;
    return DLC_OK;
}
