/* Runs a net: one operation, with all that is needed around it; the whole batch,
 * forward and backward; and the losses and metrics that come out. */
#include <string.h>

#include "base/clock.h"
#include "net/ops.h"
#include "net/run.h"
#include "plugin/answers.h"

void dlc_net_note_activity(const dlc_net *net, const char *phase, const net_op *op) {
    if (net->args.on_activity)
        (void)net->args.on_activity(net->args.activity_context, phase, op->name);
}

/* Marks an operation for the device's profiler. */
static void begin_range(const dlc_net *net, const net_op *op) {
    const dlc_device_ops *ops = net->args.device_ops;
    if (DLC_CAN(ops, range_begin))
        ops->range_begin(net->args.device, op->name);
}

static void end_range(const dlc_net *net) {
    const dlc_device_ops *ops = net->args.device_ops;
    if (DLC_CAN(ops, range_end))
        ops->range_end(net->args.device);
}

static dlc_status named(dlc_status status, const net_op *op, const char *phase) {
    return status == DLC_OK ? DLC_OK : dlc_net_blame(op, phase, status);
}

/* ---- Timing ---------------------------------------------------------------------- */

static uint64_t start_timing(const dlc_net *net) {
    return net->timed ? dlc_now_ns() : 0;
}

static dlc_status end_op_timing(const dlc_net *net, net_op *op, dlc_net_part part,
                                uint64_t start) {
    if (!net->timed)
        return DLC_OK;
    DLC_TRY(dlc_net_sync(net));
    op->ns[part] += dlc_now_ns() - start;
    return DLC_OK;
}

/* ---- Forward --------------------------------------------------------------------- */

/* The set and the range of its arena that hold an operation's weights, all of which are
 * of one set; the range is empty if it has none. */
static int32_t weight_range(const dlc_net *net, const net_op *op, size_t *begin,
                            size_t *end) {
    int32_t set = DLC_PARAMS_WHOLE;
    *begin = *end = 0;
    for (int32_t j = 0; j < op->memory.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j].own;
        if (param->is_buffer)
            continue;
        set = param->set;
        if (*end == 0 || param->offset < *begin)
            *begin = param->offset;
        if (param->offset + param->count > *end)
            *end = param->offset + param->count;
    }
    return set;
}

static dlc_status wait_for_weights(const dlc_net *net, const net_op *op) {
    size_t begin = 0, end = 0;
    if (!net->args.wait_for_weights)
        return DLC_OK;
    int32_t set = weight_range(net, op, &begin, &end);
    return end > begin
               ? net->args.wait_for_weights(net->args.weights_context, set, begin, end)
               : DLC_OK;
}

/* Without samples a rank only runs what needs all ranks of the group. */
static int has_no_part(const dlc_net *net, const net_op *op) {
    return net->args.empty && !op->in_group;
}

dlc_status dlc_net_forward_op(dlc_net *net, net_op *op) {
    if (op->fused_into)
        return DLC_OK;
    DLC_TRY(wait_for_weights(net, op)); /* also without samples: ranks stay in step */
    if (has_no_part(net, op))
        return DLC_OK;
    dlc_net_note_activity(net, op->in_group ? "synchronized forward" : "forward", op);
    uint64_t start = start_timing(net);
    begin_range(net, op);
    dlc_status status = op->ops->forward(net, op, NET_RUN_FORWARD);
    end_range(net);
    DLC_TRY(named(status, op, "forward"));
    return end_op_timing(net, op, DLC_NET_FORWARD, start);
}

/* ---- Recomputing ----------------------------------------------------------------- */

/* Recomputes a tensor, and first its inputs if they have to be recomputed, too. */
static dlc_status recompute(const dlc_net *net, int32_t tensor) {
    net_op *op = net->tensor[tensor].producer;
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_tensor *from = &net->tensor[op->input[j]];
        if (from->recompute_before == net->tensor[tensor].recompute_before)
            DLC_TRY(recompute(net, op->input[j]));
    }
    uint64_t start = start_timing(net);
    DLC_TRY(named(op->ops->forward(net, op, NET_RUN_RECOMPUTE), op, "forward"));
    return end_op_timing(net, op, DLC_NET_FORWARD, start);
}

/* Recomputes the tensors that were not kept, if backward of the operation is the first
 * to read them. */
static dlc_status recompute_for(const dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (net->tensor[op->input[j]].recompute_before == op)
            DLC_TRY(recompute(net, op->input[j]));
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (net->tensor[op->output[j]].recompute_before == op)
            DLC_TRY(recompute(net, op->output[j]));
    return DLC_OK;
}

/* ---- Backward -------------------------------------------------------------------- */

static dlc_status add_edge_part(const dlc_net *net, const dlc_tensor *tensor,
                                const void *part, void *diff) {
    const dlc_device_ops *ops = net->args.device_ops;
    dlc_device *device = net->args.device;
    dlc_queue *queue = net->args.queue;
    size_t count = dlc_tensor_bytes(tensor) / dlc_dtype_bytes(tensor->dtype);
    if (!net_is_16_bit(tensor))
        return ops->add(device, queue, count, part, diff);
    if (tensor->dtype == DLC_BF16 && DLC_CAN(ops, add_bf16))
        return ops->add_bf16(device, queue, count, part, diff);
    if (tensor->dtype == DLC_F16 && DLC_CAN(ops, add_f16))
        return ops->add_f16(device, queue, count, part, diff);
    return dlc_fail(DLC_ERR_UNSUPPORTED,
                    "device '%s' cannot add %s; set [train] precision = float32",
                    net->args.device_feature->name,
                    tensor->dtype == DLC_BF16 ? "bfloat16" : "half precision");
}

/* Adds up the gradients of a tensor that several operations read. */
static dlc_status add_edge_parts(const dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_edge *edge = &op->edge[j];
        if (!edge->wanted || !edge->add || net->args.empty)
            continue;
        const net_tensor *tensor = &net->tensor[op->input[j]];
        DLC_TRY(add_edge_part(net, &tensor->tensor, edge->target, tensor->diff));
    }
    return DLC_OK;
}

/* The gradients of the weights come first, since those of the data may overwrite what
 * they are computed from. */
static dlc_status run_parts(const dlc_net *net, net_op *op) {
    uint32_t parts = op->frozen ? DLC_BACKWARD_DATA
                                : DLC_BACKWARD_DATA | DLC_BACKWARD_WEIGHTS;
    if (net->timed && dlc_net_can_split_backward(op)) {
        uint64_t start = start_timing(net);
        DLC_TRY(op->ops->backward(net, op, DLC_BACKWARD_WEIGHTS));
        DLC_TRY(end_op_timing(net, op, DLC_NET_BACKWARD_WEIGHTS, start));
        parts = DLC_BACKWARD_DATA;
    }
    uint64_t start = start_timing(net);
    DLC_TRY(op->ops->backward(net, op, parts));
    DLC_TRY(add_edge_parts(net, op));
    return end_op_timing(net, op, dlc_net_backward_part(op), start);
}

dlc_status dlc_net_backward_op(dlc_net *net, net_op *op) {
    if (!op->runs_backward || has_no_part(net, op))
        return DLC_OK;
    dlc_net_note_activity(net, op->in_group ? "synchronized backward" : "backward", op);
    if (!net->args.empty)
        DLC_TRY(recompute_for(net, op));
    begin_range(net, op);
    dlc_status status = run_parts(net, op);
    end_range(net);
    return named(status, op, "backward");
}

dlc_status dlc_net_gradients_done(const dlc_net *net, const net_op *op,
                                  const net_done *done) {
    size_t begin = 0, end = 0;
    if (!op->runs_backward || !done->call)
        return DLC_OK;
    int32_t set = weight_range(net, op, &begin, &end);
    return end ? done->call(done->context, set, end) : DLC_OK;
}

/* ---- The batch ------------------------------------------------------------------- */

const dlc_net_fields *dlc_net_batch_fields(const dlc_net *net) {
    return &net->args.fields;
}

static dlc_status copy_fields(const dlc_net *net, const void *const *value,
                              int32_t first) {
    for (int32_t i = first; i < net->args.fields.count; i++)
        DLC_TRY(dlc_net_copy(net, net->tensor[i].data, value[i],
                             dlc_tensor_bytes(&net->tensor[i].tensor)));
    return DLC_OK;
}

dlc_status dlc_net_set_batch(dlc_net *net, const void *const *value) {
    if (!dlc_net_on_host(net))
        return copy_fields(net, value, 0);
    /* Read in place and never written; memcpy only drops the const. */
    for (int32_t i = 0; i < net->args.fields.count; i++)
        memcpy(&net->tensor[i].data, &value[i], sizeof value[i]);
    return DLC_OK;
}

dlc_status dlc_net_set_bytes(dlc_net *net, const void *const *value, const float *mean,
                             const float *scale) {
    const dlc_net_args *args = &net->args;
    const net_tensor *data = &net->tensor[DLC_FIELD_DATA];
    const dlc_shape *shape = &data->tensor.shape;
    size_t count = (size_t)dlc_shape_count(shape), channels = (size_t)shape->dims[1];
    size_t plane = count / (size_t)shape->dims[0] / channels;
    DLC_TRY(args->device_ops->normalize(args->device, args->queue, count, plane,
                                        channels, value[DLC_FIELD_DATA], mean, scale,
                                        data->data));
    return copy_fields(net, value, DLC_FIELD_DATA + 1);
}

static void reset_times(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++)
        memset(net->op[i]->ns, 0, sizeof net->op[i]->ns);
}

/* With batch chunks the rest of forward comes with backward when the net trains. */
dlc_status dlc_net_forward(dlc_net *net, int64_t iteration, int64_t sample) {
    if (net->timed)
        reset_times(net);
    net->iteration = iteration;
    dlc_net_set_sample(net, sample);
    for (int32_t i = 0; i < net->chunks.first_op; i++)
        DLC_TRY(dlc_net_forward_op(net, net->op[i]));
    return net_is_training(net) ? DLC_OK : dlc_net_chunks_forward(net);
}

dlc_status dlc_net_backward(dlc_net *net, float loss_scale, dlc_net_done *done,
                            void *context) {
    const net_done after = {done, context};
    net->loss_scale = loss_scale;
    DLC_TRY(dlc_net_chunks_train(net, &after));
    for (int32_t i = net->chunks.first_op - 1; i >= 0; i--) {
        net_op *op = net->op[i];
        DLC_TRY(dlc_net_backward_op(net, op));
        DLC_TRY(dlc_net_gradients_done(net, op, &after));
    }
    return DLC_OK;
}

/* ---- Timing ---------------------------------------------------------------------- */

void dlc_net_time(dlc_net *net, int on) {
    net->timed = on;
    reset_times(net);
}

void dlc_net_seconds(const dlc_net *net, int32_t i, double seconds[DLC_NET_PARTS]) {
    for (int part = 0; part < DLC_NET_PARTS; part++)
        seconds[part] = (double)net->op[i]->ns[part] * 1e-9;
}

/* ---- Metrics --------------------------------------------------------------------- */

/* A metric's sum and count over the whole batch. */
static const float *metric_sums(const dlc_net *net, const net_op *op) {
    return op->chunk_metric_buffer == NO_BUFFER
               ? net->tensor[op->output[0]].data
               : dlc_net_buffer_at(net, op->chunk_metric_buffer);
}

static int is_loss(const net_op *op) {
    return net_is_metric(op) && op->caps & DLC_LAYER_LOSS;
}

/* Counts the operations that `is` holds for, up to number `end`; *last is the last. */
static int32_t count_ops(const dlc_net *net, int (*is)(const net_op *op), int32_t end,
                         net_op **last) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops && count < end; i++)
        if (is(net->op[i])) {
            *last = net->op[i];
            count++;
        }
    return count;
}

int32_t dlc_net_metrics(const dlc_net *net) {
    net_op *last;
    return count_ops(net, net_is_metric, INT32_MAX, &last);
}

dlc_status dlc_net_metric(const dlc_net *net, int32_t i, dlc_metric *metric) {
    net_op *op = NULL;
    float values[2];
    (void)count_ops(net, net_is_metric, i + 1, &op);
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(net->args.device_ops->copy(net->args.device, NULL, values,
                                       metric_sums(net, op), sizeof values));
    *metric = (dlc_metric){.name = op->name,
                           .is_loss = (op->caps & DLC_LAYER_LOSS) != 0,
                           .weight = net->args.graph->layer[op->node].loss_weight,
                           .sum = (double)values[0],
                           .count = (double)values[1]};
    return DLC_OK;
}

int32_t dlc_net_losses(const dlc_net *net) {
    net_op *last;
    return count_ops(net, is_loss, INT32_MAX, &last);
}

static net_op *loss_op(const dlc_net *net, int32_t i) {
    net_op *op = NULL;
    (void)count_ops(net, is_loss, i + 1, &op);
    return op;
}

dlc_net_loss dlc_net_loss_at(const dlc_net *net, int32_t i) {
    const net_op *op = loss_op(net, i);
    const dlc_graph_layer *layer = &net->args.graph->layer[op->node];
    const dlc_layer_ops *calls = layer->feature->ops;
    int is_told = layer->inputs > 1 && layer->input[1].layer == DLC_FROM_DATA &&
                  DLC_CAN(calls, count);
    return (dlc_net_loss){.number = dlc_graph_losses(net->args.graph, op->node),
                          .field = is_told ? layer->input[1].output : -1};
}

dlc_status dlc_net_count(const dlc_net *net, int32_t i, const void *targets,
                         int64_t samples, double *counted) {
    const net_op *op = loss_op(net, i);
    const net_layer *layer = (const net_layer *)op;
    return DLC_ASK(layer->calls, "count",
                   layer->calls->count(layer->layer, targets, samples, counted));
}

void dlc_net_set_loss_share(dlc_net *net, int32_t i, float share,
                            const double *counted) {
    net_op *op = loss_op(net, i);
    op->loss_share = share;
    op->counted = counted;
}

dlc_status dlc_net_add_loss(const dlc_net *net, int32_t i, float share, float *sum) {
    const dlc_net_args *args = &net->args;
    const net_op *op = loss_op(net, i);
    double weight = args->graph->layer[op->node].loss_weight;
    return args->device_ops->add_mean(args->device, args->queue, share * (float)weight,
                                      metric_sums(net, op), sum);
}
