/* Building a net: layers made and shapes inferred in the order of the graph, layers
 * absorbed by the one before, and the way of the gradients traced. */
#include "base/log.h"
#include "base/memory.h"
#include "net/internal.h"
#include "net/portions.h"

#include <string.h>

/* ---- Making ---------------------------------------------------------------------- */

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
    DLC_TRY(dlc_net_add_ports_in(net));
    if (net->portions.count == 0)
        return DLC_OK;
    label.shape.dims[0] = net->portions.own_rows;
    net->portions.label = dlc_net_tensor_add(net, &label, NO_OP);
    if (net->portions.label < 0)
        return net->portions.label;
    net->tensor[net->portions.label].of_portion = 1;
    return DLC_OK;
}

/* The context of a family in this net, opened at its first layer. */
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
                            .tune = net->args.tune};
    void *opened = NULL;
    DLC_TRY(family->open(&args, &opened));
    net->family[net->families++] = (net_family){.family = family, .context = opened};
    *context = opened;
    return DLC_OK;
}

/* The operation that a layer of the graph became, NULL if it is not in the net. */
net_op *dlc_net_op_of_node(const dlc_net *net, int32_t node) {
    for (int32_t i = 0; net && i < net->ops; i++)
        if (net->op[i].node == node)
            return &net->op[i];
    return NULL;
}

dlc_status dlc_net_allocate_op(net_op *op, int32_t inputs) {
    size_t n = (size_t)inputs + 1; /* room for that of an absorbed join */
    op->in = dlc_alloc(n, sizeof *op->in);
    op->out = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->out);
    op->param = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->param);
    op->input = dlc_alloc(n, sizeof *op->input);
    op->output = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->output);
    op->edge = dlc_alloc(n, sizeof *op->edge);
    op->in_data = dlc_alloc(n, sizeof *op->in_data);
    op->in_diff = dlc_alloc(n, sizeof *op->in_diff);
    op->out_data = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->out_data);
    op->out_diff = dlc_alloc(DLC_MAX_OUTPUTS, sizeof *op->out_diff);
    op->params = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->params);
    op->param_diffs = dlc_alloc(DLC_MAX_PARAMS, sizeof *op->param_diffs);
    if (!op->in || !op->out || !op->param || !op->input || !op->output || !op->edge ||
        !op->in_data || !op->in_diff || !op->out_data || !op->out_diff || !op->params ||
        !op->param_diffs)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        op->param[i] = (dlc_param){.size = sizeof(dlc_param), .rate = 1, .decay = 1};
    op->absorbed_by = NO_OP;
    op->workspace_buffer = op->sum_buffer = op->mean_buffer = NO_BUFFER;
    for (int i = 0; i < NET_RUNS; i++)
        op->scratch_buffer[i] = NO_BUFFER;
    op->plan = (dlc_layer_plan){.size = sizeof op->plan,
                                .inputs = inputs,
                                .in = op->in,
                                .outputs = 1,
                                .out = op->out,
                                .param = op->param};
    return DLC_OK;
}

/* Channels [begin, end) of a split layer; both 0: the whole of one. */
static dlc_status create_layer(dlc_net *net, net_op *op, int64_t begin, int64_t end) {
    const dlc_graph_layer *from = &net->args.graph->layer[op->node];
    net_op *twin = dlc_net_op_of_node(net->args.twin, op->node);
    dlc_layer_args args = {.size = sizeof args,
                           .name = from->name,
                           .settings = from->settings,
                           .phase = net->args.phase,
                           .twin = twin ? twin->layer : NULL,
                           .seed = net->args.seed,
                           .index = (uint32_t)op->node,
                           .slice_begin = begin,
                           .slice_end = end,
                           .plain_params = net->args.plain &&
                                           net->args.plain[op->node]};
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
    if (!producer || input.output >= producer->plan.outputs)
        return producer ? NO_OP : dlc_net_port_tensor(net, input);
    return producer->output[input.output];
}

/* A tensor of an input, in the spread in which the layer reads it. */
static dlc_status find_input(dlc_net *net, int32_t node, int32_t i, int32_t *tensor) {
    const dlc_graph_layer *from = &net->args.graph->layer[node];
    int32_t found = tensor_of_input(net, from->input[i]);
    if (found == TENSOR_LABEL && dlc_net_in_group(net, node))
        found = net->portions.label;
    if (found == NO_OP)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': its input %d comes from layer '%s', which has "
                        "no such output in this phase",
                        from->name, (int)i + 1,
                        net->args.graph->layer[from->input[i].layer].name);
    return dlc_net_bring(net, found, dlc_net_reads(net, node), node, tensor);
}

/* What has to be put in before the layer. */
static dlc_status bring_inputs(dlc_net *net, int32_t node) {
    int32_t tensor = NO_OP;
    for (int32_t i = 0; i < net->args.graph->layer[node].inputs; i++)
        DLC_TRY(find_input(net, node, i, &tensor));
    return DLC_OK;
}

static dlc_status find_inputs(dlc_net *net, net_op *op) {
    for (int32_t i = 0; i < op->plan.inputs; i++) {
        DLC_TRY(find_input(net, op->node, i, &op->input[i]));
        op->in[i] = net->tensor[op->input[i]].tensor;
        if (!net_knows_type(op->feature, &op->in[i]))
            op->in[i].dtype = DLC_F32;
        if (op->block_rows)
            op->in[i].shape.dims[0] = op->block_rows;
    }
    return DLC_OK;
}

/* Shapes that no tensor can have are a plugin's mistake or a net too large. */
static dlc_status check_shape(const net_op *op, const dlc_tensor *tensor) {
    int64_t count = (int64_t)dlc_dtype_bytes(tensor->dtype);
    int ok = count > 0 && tensor->shape.rank >= 0 && tensor->shape.rank <= DLC_MAX_DIMS;
    for (int32_t i = 0; ok && i < tensor->shape.rank; i++)
        ok = tensor->shape.dims[i] >= 1 &&
             !__builtin_mul_overflow(count, tensor->shape.dims[i], &count);
    if (!ok)
        return dlc_fail(DLC_ERR_CONFIG, "layer '%s': its output is empty or too large",
                        op->name);
    return DLC_OK;
}

/* A split layer gives its slice; others what they read. */
static void spread_output(const dlc_net *net, const net_op *op, net_tensor *out) {
    out->of_portion = dlc_net_in_group(net, op->node);
    if (op->slice_whole) {
        out->spread = SPREAD_SLICED;
        out->channels = op->slice_whole;
    } else if (op->of_all) {
        out->spread = net->tensor[op->input[0]].spread;
        out->channels = net->tensor[op->input[0]].channels;
    }
}

static dlc_status infer_layer(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    dlc_status status = op->ops->infer(op->layer, &op->plan);
    if (status != DLC_OK)
        return dlc_net_blame(op, NULL, status);
    if (op->plan.outputs < 1 || op->plan.outputs > DLC_MAX_OUTPUTS ||
        op->plan.params < 0 || op->plan.params > DLC_MAX_PARAMS)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "layer '%s': type '%s' has %d outputs and %d "
                        "parameters, which is out of bounds",
                        op->name, op->feature->name, (int)op->plan.outputs,
                        (int)op->plan.params);
    for (int32_t i = 0; i < op->plan.outputs; i++) {
        DLC_TRY(check_shape(op, &op->out[i]));
        dlc_tensor out = op->out[i];
        if (op->block_rows)
            out.shape.dims[0] = net->portions.rows;
        int32_t tensor = dlc_net_tensor_add(net, &out, index);
        if (tensor < 0)
            return tensor;
        op->output[i] = tensor;
        spread_output(net, op, &net->tensor[tensor]);
    }
    return DLC_OK;
}

/* ---- Absorbing ------------------------------------------------------------------- */

/* The only reader of a tensor; NULL if there are none or several. */
static net_op *only_reader(dlc_net *net, int32_t tensor) {
    net_op *reader = NULL;
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        for (int32_t j = 0; op->absorbed_by == NO_OP && j < op->plan.inputs; j++) {
            if (op->input[j] != tensor)
                continue;
            if (reader)
                return NULL;
            reader = op;
        }
    }
    return reader;
}

/* An element-by-element layer without parameters, as the plugin says and as its plan
 * shows. */
static int may_be_absorbed(const net_op *op) {
    uint64_t caps = op->feature ? op->feature->caps : 0;
    int inputs = caps & DLC_LAYER_POINTWISE ? 1 : caps & DLC_LAYER_JOIN ? 2 : 0;
    return op->plan.inputs == inputs && op->plan.outputs == 1 && op->plan.params == 0;
}

/* A join's input that operation `index` doesn't give: it must be there before. */
static int32_t other_input(const dlc_net *net, const net_op *join, int32_t index) {
    int32_t other = join->input[join->input[0] == net->op[index].output[0]];
    int32_t producer = net->tensor[other].producer;
    return producer < index ? other : NO_OP;
}

/* Lets a layer take over what follows it, as long as it wants to. */
static dlc_status absorb_followers(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    int joined = 0;
    while (op->plan.outputs == 1) {
        net_op *next = only_reader(net, op->output[0]);
        if (!next || !may_be_absorbed(next))
            return DLC_OK;
        const dlc_graph_layer *from = &net->args.graph->layer[next->node];
        int joins = next->plan.inputs == 2;
        int32_t other = joins ? other_input(net, next, index) : NO_OP;
        if (joins && (other == NO_OP || joined))
            return DLC_OK;
        dlc_status status = op->ops->absorb(op->layer, next->feature, from->settings);
        if (status == DLC_ERR_UNSUPPORTED)
            return DLC_OK;
        if (status != DLC_OK)
            return dlc_net_blame(op, NULL, status);
        if (joins) {
            op->input[op->plan.inputs] = other;
            op->in[op->plan.inputs++] = net->tensor[other].tensor;
            joined = 1;
        }
        next->absorbed_by = index;
        op->output[0] = next->output[0];
        op->out[0] = next->out[0];
        net->tensor[op->output[0]].producer = index;
        dlc_debug("layer '%s' does the work of '%s'", op->name, next->name);
    }
    return DLC_OK;
}

/* ---- Gradients ------------------------------------------------------------------- */

static int has_trained_params(const net_op *op) {
    for (int32_t i = 0; i < op->plan.params; i++)
        if (!(op->param[i].flags & DLC_PARAM_BUFFER))
            return 1;
    return 0;
}

/* Does a later operation, whose backward comes first, give a gradient for what
 * operation `index` reads, too? */
static int shares_gradient(const dlc_net *net, int32_t index, int32_t tensor) {
    for (int32_t i = index + 1; i < net->ops; i++) {
        const net_op *other = &net->op[i];
        for (int32_t k = 0; other->absorbed_by == NO_OP && k < other->plan.inputs; k++)
            if (other->input[k] == tensor && other->edge[k].wanted)
                return 1;
    }
    return 0;
}

static void tell_shared_gradients(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        for (int32_t j = 0; j < op->plan.inputs; j++)
            if (op->edge[j].wanted && shares_gradient(net, i, op->input[j]))
                op->plan.shares_gradient |= 1ull << j;
    }
}

/* Backward of an operation runs where a loss lies behind it and something to train
 * at or before it. */
static void trace_gradients(dlc_net *net) {
    if (net->args.phase != DLC_PHASE_TRAIN)
        return;
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        net_op *op = &net->op[i];
        if (op->absorbed_by != NO_OP || (op->ops && !DLC_CAN(op->ops, backward)))
            continue;
        uint64_t caps = op->feature ? op->feature->caps : 0;
        op->reaches_loss |= op->port ? op->port->gradient
                                     : (caps & DLC_LAYER_LOSS) != 0;
        for (int32_t j = 0; op->reaches_loss && j < op->plan.inputs; j++) {
            int32_t producer = net->tensor[op->input[j]].producer;
            if (producer != NO_OP && !(op->plan.no_gradient >> j & 1))
                net->op[producer].reaches_loss = 1;
        }
    }
    for (int32_t i = 0; i < net->ops; i++) {
        net_op *op = &net->op[i];
        if (op->absorbed_by != NO_OP || !op->reaches_loss)
            continue;
        int wants = has_trained_params(op);
        for (int32_t j = 0; j < op->plan.inputs; j++) {
            int wanted = net->tensor[op->input[j]].wants_gradient &&
                         !(op->plan.no_gradient >> j & 1);
            op->edge[j].wanted = wanted;
            op->plan.wants_gradient |= (uint64_t)wanted << j;
            wants |= wanted;
        }
        op->runs_backward = wants;
        for (int32_t j = 0; j < op->plan.outputs; j++)
            net->tensor[op->output[j]].wants_gradient = wants;
    }
    tell_shared_gradients(net);
}

/* ---- The whole ------------------------------------------------------------------- */

/* Room for every layer, for an exchange before each of its inputs, and for ports. */
static dlc_status allocate_ops(dlc_net *net) {
    const dlc_graph *graph = net->args.graph;
    size_t room = (size_t)graph->layers + (size_t)net->args.ports_out;
    for (int32_t i = 0; net->args.split && i < graph->layers; i++)
        room += (size_t)graph->layer[i].inputs;
    net->op = dlc_alloc(room, sizeof *net->op);
    return net->op ? DLC_OK : DLC_ERR_NOMEM;
}

/* As it was before infer. */
static void forget_plan(net_op *op) {
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        op->param[i] = (dlc_param){.size = sizeof(dlc_param), .rate = 1, .decay = 1};
    memset(op->out, 0, DLC_MAX_OUTPUTS * sizeof *op->out);
    op->plan = (dlc_layer_plan){.size = sizeof op->plan,
                                .inputs = op->plan.inputs,
                                .in = op->in,
                                .outputs = 1,
                                .out = op->out,
                                .param = op->param};
}

/* Asks the layer, made whole, how many channels it gives; the slice of them that is
 * made here becomes the operation's. */
static dlc_status choose_slice(dlc_net *net, net_op *op, int64_t *begin, int64_t *end) {
    DLC_TRY(create_layer(net, op, 0, 0));
    dlc_status status = op->ops->infer(op->layer, &op->plan);
    int64_t channels = op->out[0].shape.rank > 1 ? op->out[0].shape.dims[1] : 0;
    op->ops->destroy(op->layer);
    op->ops = NULL;
    op->layer = NULL;
    forget_plan(op);
    if (status != DLC_OK)
        return dlc_net_blame(op, NULL, status);
    DLC_TRY(dlc_net_check_slices(net, op->name, channels));
    *begin = dlc_net_cut(net->args.split, channels, net->args.split->rank);
    *end = dlc_net_cut(net->args.split, channels, net->args.split->rank + 1);
    op->slice_begin = *begin;
    op->slice_whole = channels;
    return DLC_OK;
}

static dlc_status make_layer(dlc_net *net, int32_t node) {
    const dlc_graph_layer *from = &net->args.graph->layer[node];
    int64_t begin = 0, end = 0;
    DLC_TRY(bring_inputs(net, node));
    net_op *op = &net->op[net->ops++];
    DLC_TRY(dlc_net_allocate_op(op, from->inputs));
    op->node = node;
    op->name = from->name;
    op->feature = from->feature;
    op->of_all = dlc_net_reads(net, node) != SPREAD_OWN;
    op->block_rows = dlc_net_block_rows(net, op);
    DLC_TRY(find_inputs(net, op));
    if (dlc_net_is_split(net, node))
        DLC_TRY(choose_slice(net, op, &begin, &end));
    DLC_TRY(create_layer(net, op, begin, end));
    DLC_TRY(infer_layer(net, net->ops - 1));
    DLC_TRY(dlc_net_check_portions(net, op));
    return op->slice_whole ? dlc_net_check_sliced(op, end - begin) : DLC_OK;
}

/* Is there all that the layer reads? */
static int is_sound(const dlc_net *net, int32_t node) {
    const dlc_graph_layer *layer = &net->args.graph->layer[node];
    for (int32_t i = 0; !layer->broken && i < layer->inputs; i++) {
        int32_t from = layer->input[i].layer;
        if (from != DLC_FROM_DATA && !dlc_net_op_of_node(net, from))
            return 0;
    }
    return !layer->broken;
}

static int knows_shapes_alone(const dlc_family *family) {
    return DLC_HAS(family, shapes_alone) && family->shapes_alone;
}

/* One whose shapes don't fit is told and forgotten. */
static dlc_status try_layer(dlc_net *net, int32_t node) {
    int32_t ops = net->ops;
    void *context;
    if (!is_sound(net, node))
        return DLC_OK;
    const dlc_layer_ops *table = net->args.graph->layer[node].feature->ops;
    if (!net->args.device && !knows_shapes_alone(table->family))
        return DLC_OK;
    DLC_TRY(open_family(net, table->family, &context)); /* no mistake of this layer */
    dlc_status status = make_layer(net, node);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    net->args.misfit(net->args.misfit_context, node, status);
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
    DLC_TRY(dlc_net_portions_open(net));
    DLC_TRY(add_batch_tensors(net));
    DLC_TRY(allocate_ops(net));
    for (int32_t node = net->args.first; node < end; node++)
        if (graph->layer[node].phases & (unsigned)net->args.phase)
            DLC_TRY(net->args.misfit ? try_layer(net, node) : make_layer(net, node));
    for (int32_t i = 0; i < net->args.ports_out; i++) {
        net_op *op = &net->op[net->ops++];
        DLC_TRY(dlc_net_add_port_op(net, op, &net->args.port_out[i]));
    }
    for (int32_t i = 0; i < net->ops && !net->args.outline; i++)
        if (net->op[i].absorbed_by == NO_OP && DLC_CAN(net->op[i].ops, absorb))
            DLC_TRY(absorb_followers(net, i));
    trace_gradients(net);
    return DLC_OK;
}
