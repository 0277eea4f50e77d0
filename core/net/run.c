/* Runs passes: the operations in order, forward and backward, and their metrics. */
#include "base/clock.h"
#include "net/batch_chunks.h"
#include "net/internal.h"

#include <string.h>

static dlc_status copy(const dlc_net *net, void *dst, const void *src, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return args->device_ops->copy(args->device, args->queue, dst, src, bytes);
}

dlc_status dlc_net_sync(const dlc_net *net) {
    const dlc_net_args *args = &net->args;
    return args->queue ? args->device_ops->queues->queue_sync(args->device, args->queue)
                       : DLC_OK;
}

dlc_status dlc_net_set_input(dlc_net *net, const float *data, const int32_t *labels) {
    net_tensor *tensor = net->tensor;
    if (!dlc_net_on_host(net)) {
        DLC_TRY(copy(net, tensor[TENSOR_DATA].data, data,
                     dlc_tensor_bytes(&tensor[TENSOR_DATA].tensor)));
        return copy(net, tensor[TENSOR_LABEL].data, labels,
                    dlc_tensor_bytes(&tensor[TENSOR_LABEL].tensor));
    }
    /* Read in place and never written; memcpy only drops the const. */
    memcpy(&tensor[TENSOR_DATA].data, &data, sizeof data);
    memcpy(&tensor[TENSOR_LABEL].data, &labels, sizeof labels);
    return DLC_OK;
}

dlc_status dlc_net_set_bytes(dlc_net *net, const uint8_t *data, const float *mean,
                             float scale, const int32_t *labels) {
    const dlc_net_args *args = &net->args;
    net_tensor *tensor = net->tensor;
    const dlc_shape *shape = &tensor[TENSOR_DATA].tensor.shape;
    size_t count = (size_t)dlc_shape_count(shape), channels = (size_t)shape->dims[1];
    size_t plane = count / (size_t)shape->dims[0] / channels;
    DLC_TRY(args->device_ops->normalize(args->device, args->queue, count, plane,
                                        channels, data, mean, scale,
                                        tensor[TENSOR_DATA].data));
    return copy(net, tensor[TENSOR_LABEL].data, labels,
                dlc_tensor_bytes(&tensor[TENSOR_LABEL].tensor));
}

static void note_activity(const dlc_net *net, const char *phase, const net_op *op) {
    if (net->args.on_activity)
        net->args.on_activity(net->args.activity_context, phase, op->name);
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

static void reset_times(dlc_net *net) {
    for (int32_t i = 0; net->timed && i < net->ops; i++)
        memset(net->op[i].ns, 0, sizeof net->op[i].ns);
}

static uint64_t begin_part(const dlc_net *net) {
    return net->timed ? dlc_now_ns() : 0;
}

static dlc_status end_part(const dlc_net *net, net_op *op, dlc_net_part part,
                           uint64_t start) {
    if (!net->timed)
        return DLC_OK;
    DLC_TRY(dlc_net_sync(net));
    op->ns[part] += dlc_now_ns() - start;
    return DLC_OK;
}

/* ---- Forward --------------------------------------------------------------------- */

/* With recomputation backward may read from other buffers than forward has written. */
static void point_inputs(const dlc_net *net, net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++)
        op->in_data[j] = net->tensor[op->input[j]].data;
    for (int32_t j = 0; j < op->memory.outputs; j++)
        op->out_data[j] = net->tensor[op->output[j]].data;
}

static void *in_backward(const net_tensor *tensor) {
    return tensor->recompute_before == NO_OP ? tensor->data : tensor->recomputed;
}

static void point_inputs_backward(const dlc_net *net, net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++)
        op->in_data[j] = in_backward(&net->tensor[op->input[j]]);
    for (int32_t j = 0; j < op->memory.outputs; j++)
        op->out_data[j] = in_backward(&net->tensor[op->output[j]]);
}

/* Recomputes a tensor, and first its inputs if they have to be recomputed, too. */
static dlc_status recompute(dlc_net *net, int32_t tensor) {
    net_op *op = &net->op[net->tensor[tensor].producer];
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_tensor *from = &net->tensor[op->input[j]];
        if (from->recompute_before == net->tensor[tensor].recompute_before)
            DLC_TRY(recompute(net, op->input[j]));
    }
    point_inputs_backward(net, op);
    op->run.recompute = 1;
    op->run.scratch = op->scratch[NET_RUN_RECOMPUTE];
    uint64_t start = begin_part(net);
    DLC_TRY(named(dlc_net_run_layer(net, op, op->ops->forward), op, "forward"));
    return end_part(net, op, DLC_NET_FORWARD, start);
}

/* Recomputes the tensors that were not kept, if backward of operation `index` is the
 * first to read them. */
static dlc_status recompute_inputs(dlc_net *net, int32_t index) {
    const net_op *op = &net->op[index];
    for (int32_t j = 0; j < op->memory.inputs; j++)
        if (net->tensor[op->input[j]].recompute_before == index)
            DLC_TRY(recompute(net, op->input[j]));
    for (int32_t j = 0; j < op->memory.outputs; j++)
        if (net->tensor[op->output[j]].recompute_before == index)
            DLC_TRY(recompute(net, op->output[j]));
    return DLC_OK;
}

static dlc_status call_forward(dlc_net *net, net_op *op) {
    if (op->reshard)
        return dlc_net_reshard_forward(net, op, net->tensor[op->input[0]].data,
                                       net->tensor[op->output[0]].data);
    if (op->boundary)
        return dlc_net_run_boundary(net, op->reorder_forward, op,
                                    net->tensor[op->input[0]].data,
                                    net->tensor[op->output[0]].data);
    if (!op->feature) {
        const net_tensor *in = &net->tensor[op->input[0]];
        return op->family->reorder_run(op->reorder_forward, in->data,
                                       net->tensor[op->output[0]].data);
    }
    point_inputs(net, op);
    op->run.recompute = 0;
    op->run.scratch = op->scratch[NET_RUN_FORWARD];
    DLC_TRY(dlc_net_run_layer(net, op, op->ops->forward));
    return dlc_net_add_metric(net, op);
}

/* The range of the arena that holds an operation's weights; both 0 if it has none. */
static void weights_of(const dlc_net *net, const net_op *op, size_t *begin,
                       size_t *end) {
    *begin = *end = 0;
    for (int32_t j = 0; j < op->memory.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j];
        if (param->is_buffer || param->is_sharded)
            continue;
        if (*end == 0 || param->offset < *begin)
            *begin = param->offset;
        if (param->offset + param->count > *end)
            *end = param->offset + param->count;
    }
}

static dlc_status wait_for_weights(const dlc_net *net, const net_op *op) {
    size_t begin = 0, end = 0;
    if (!net->args.wait_for_weights)
        return DLC_OK;
    weights_of(net, op, &begin, &end);
    return end > begin
               ? net->args.wait_for_weights(net->args.weights_context, begin, end)
               : DLC_OK;
}

static int64_t sample_of(const dlc_net *net, int32_t i, int64_t sample) {
    if (dlc_net_op_is_chunked(net, i))
        return dlc_net_chunk_sample(net, &net->op[i], sample);
    return net->op[i].all_samples ? 0 : sample;
}

dlc_status dlc_net_forward_op(dlc_net *net, int32_t i, int64_t iteration,
                              int64_t sample) {
    net_op *op = &net->op[i];
    if (op->fused_into != NO_OP || dlc_net_is_idle(net, op))
        return DLC_OK;
    op->run.iteration = iteration;
    op->run.sample = sample_of(net, i, sample);
    DLC_TRY(wait_for_weights(net, op));
    note_activity(net, "forward", op);
    uint64_t start = begin_part(net);
    begin_range(net, op);
    dlc_status status = call_forward(net, op);
    end_range(net);
    DLC_TRY(named(status, op, "forward"));
    return end_part(net, op, DLC_NET_FORWARD, start);
}

dlc_status dlc_net_forward(dlc_net *net, int64_t iteration, int64_t sample) {
    int has_chunks = net->chunks.count > 0;
    int32_t end = has_chunks ? net->chunks.first_op : net->ops;
    reset_times(net);
    net->chunks.iteration = iteration;
    net->chunks.sample = sample;
    for (int32_t i = 0; i < end; i++)
        DLC_TRY(dlc_net_forward_op(net, i, iteration, sample));
    if (has_chunks && net->args.phase != DLC_PHASE_TRAIN)
        return dlc_net_chunks_forward(net);
    return DLC_OK;
}

/* ---- Backward -------------------------------------------------------------------- */

static dlc_status call_backward(dlc_net *net, net_op *op, float loss_scale,
                                uint32_t parts) {
    if (op->reshard)
        return dlc_net_reshard_backward(net, op, net->tensor[op->output[0]].diff,
                                        op->edge[0].target);
    if (op->boundary)
        return dlc_net_run_boundary(net, op->reorder_backward, op,
                                    net->tensor[op->output[0]].diff,
                                    op->edge[0].target);
    if (!op->feature)
        return op->family->reorder_run(
            op->reorder_backward, net->tensor[op->output[0]].diff, op->edge[0].target);
    point_inputs_backward(net, op);
    op->run.backward = parts;
    op->run.scratch = op->scratch[NET_RUN_BACKWARD];
    op->run.loss_scale = loss_scale *
                         (float)net->args.graph->layer[op->node].loss_weight;
    return dlc_net_run_layer(net, op, op->ops->backward);
}

static dlc_status add_part(const dlc_net *net, const dlc_tensor *tensor,
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
static dlc_status add_parts(dlc_net *net, const net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        const net_edge *edge = &op->edge[j];
        if (!edge->wanted || !edge->add)
            continue;
        const net_tensor *tensor = &net->tensor[op->input[j]];
        DLC_TRY(add_part(net, &tensor->tensor, edge->target, tensor->diff));
    }
    return DLC_OK;
}

/* The gradients of the weights come first, since those of the data may overwrite what
 * they are computed from. */
static dlc_status backward_op(dlc_net *net, net_op *op, float loss_scale) {
    uint32_t parts = op->frozen ? DLC_BACKWARD_DATA
                                : DLC_BACKWARD_DATA | DLC_BACKWARD_WEIGHTS;
    if (net->timed && dlc_net_can_split_backward(op)) {
        uint64_t start = begin_part(net);
        DLC_TRY(call_backward(net, op, loss_scale, DLC_BACKWARD_WEIGHTS));
        DLC_TRY(end_part(net, op, DLC_NET_BACKWARD_WEIGHTS, start));
        parts = DLC_BACKWARD_DATA;
    }
    uint64_t start = begin_part(net);
    DLC_TRY(call_backward(net, op, loss_scale, parts));
    DLC_TRY(add_parts(net, op));
    return end_part(net, op, dlc_net_backward_part(op), start);
}

static dlc_status do_backward(dlc_net *net, int32_t i, float loss_scale) {
    net_op *op = &net->op[i];
    note_activity(net, "backward", op);
    dlc_net_redirect_gradients(net, op);
    DLC_TRY(recompute_inputs(net, i));
    begin_range(net, op);
    dlc_status status = backward_op(net, op, loss_scale);
    end_range(net);
    return named(status, op, "backward");
}

dlc_status dlc_net_backward_op(dlc_net *net, int32_t i, float loss_scale,
                               dlc_status (*done)(void *context, size_t elements),
                               void *context) {
    net_op *op = &net->op[i];
    size_t begin = 0, end = 0;
    if (!op->runs_backward)
        return DLC_OK;
    if (!dlc_net_is_idle(net, op))
        DLC_TRY(do_backward(net, i, loss_scale));
    DLC_TRY(dlc_net_add_gradients(net, op));
    weights_of(net, op, &begin, &end);
    return end && done ? done(context, end) : DLC_OK;
}

dlc_status dlc_net_backward(dlc_net *net, float loss_scale,
                            dlc_status (*done)(void *context, size_t elements),
                            void *context) {
    int has_chunks = net->chunks.count > 0;
    if (has_chunks)
        DLC_TRY(dlc_net_chunks_train(net, loss_scale, done, context));
    for (int32_t i = (has_chunks ? net->chunks.first_op : net->ops) - 1; i >= 0; i--)
        DLC_TRY(dlc_net_backward_op(net, i, loss_scale, done, context));
    return DLC_OK;
}

/* ---- Metrics ----------------------------------------------------------------- */

int dlc_net_is_metric(const net_op *op) {
    return op->feature && op->fused_into == NO_OP &&
           op->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS);
}

/* A metric's sum and count over the whole batch. */
static const float *sums_of(const dlc_net *net, const net_op *op) {
    return op->chunk_metric_buffer == NO_BUFFER
               ? op->out_data[0]
               : dlc_net_buffer_at(net, op->chunk_metric_buffer);
}

int32_t dlc_net_metrics(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        count += dlc_net_is_metric(&net->op[i]);
    return count;
}

dlc_status dlc_net_metric(const dlc_net *net, int32_t i, dlc_metric *metric) {
    const net_op *op = net->op;
    for (; !dlc_net_is_metric(op) || i-- > 0; op++)
        ;
    float values[2];
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(net->args.device_ops->copy(net->args.device, NULL, values, sums_of(net, op),
                                       sizeof values));
    *metric = (dlc_metric){.name = op->name,
                           .is_loss = (op->feature->caps & DLC_LAYER_LOSS) != 0,
                           .weight = net->args.graph->layer[op->node].loss_weight,
                           .sum = (double)values[0],
                           .count = (double)values[1]};
    return DLC_OK;
}

dlc_status dlc_net_add_losses(const dlc_net *net, float share, float *sum) {
    const dlc_net_args *args = &net->args;
    for (int32_t i = 0; i < net->ops; i++) {
        const net_op *op = &net->op[i];
        if (!dlc_net_is_metric(op) || !(op->feature->caps & DLC_LAYER_LOSS))
            continue;
        double weight = args->graph->layer[op->node].loss_weight;
        DLC_TRY(args->device_ops->add_mean(
            args->device, args->queue, share * (float)weight, sums_of(net, op), sum));
    }
    return DLC_OK;
}
