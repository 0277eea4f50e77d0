/* The schedule of batch chunks. Buffers of submitted transfers belong to the progress
 * engine until it is waited for; everything else is used by the train thread and the
 * queue. */
#include "net/run.h"

#include "net/ops.h"

static net_op *gather_of(const dlc_net *net) {
    return net->op[net->chunks.first_op];
}

static net_tensor *gathered(const dlc_net *net) {
    return &net->tensor[gather_of(net)->output[0]];
}

/* The number of elements in a row. */
static size_t row_size(const dlc_net *net) {
    const dlc_shape *shape = &gathered(net)->tensor.shape;
    return (size_t)(dlc_shape_count(shape) / shape->dims[0]);
}

static net_rows own_rows(const dlc_net *net, int32_t chunk) {
    return dlc_net_chunk_rows(&net->chunks, chunk, net->chunks.tp->rank);
}

static dlc_status fill_memory(const dlc_net *net, void *dst, int byte, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return args->device_ops->fill(args->device, args->queue, dst, byte, bytes);
}

/* ---- Transfers ------------------------------------------------------------------- */

/* Adds rows to the list, which are sent to a rank or received from it. */
static void add_rows(dlc_net *net, int32_t rank, dlc_tag tag, const float *from,
                     float *to, int64_t rows) {
    net_chunks *chunks = &net->chunks;
    size_t bytes = (size_t)rows * row_size(net) * sizeof(float);
    if (bytes > 0)
        chunks->transfer[chunks->transfers++] = (dlc_transfer){
            .peer = rank, .tag = tag, .from = from, .to = to, .bytes = bytes};
}

static dlc_status submit_rows(dlc_net *net, uint64_t *handle) {
    int32_t count = net->chunks.transfers;
    net->chunks.transfers = 0;
    return dlc_progress_engine_submit(net->args.tensor_parallel->chunk_engine,
                                      net->chunks.transfer, count, handle);
}

static dlc_status wait_for(const dlc_net *net, uint64_t handle) {
    return dlc_progress_engine_wait(net->args.tensor_parallel->chunk_engine, handle);
}

/* ---- Gathering the input --------------------------------------------------------- */

static int is_full(const dlc_net *net, int32_t chunk) {
    int64_t count = 0;
    for (int32_t r = 0; r < net->chunks.tp->ranks; r++)
        count += dlc_net_chunk_rows(&net->chunks, chunk, r).count;
    return count == net->chunks.rows;
}

/* Begins to gather a chunk's input into `to`, which is not in use. */
static dlc_status begin_gather(dlc_net *net, int32_t chunk, float *to) {
    net_chunks *chunks = &net->chunks;
    size_t row = row_size(net);
    float *from = net->tensor[gather_of(net)->input[0]].data;
    net_rows own = own_rows(net, chunk);
    dlc_tag tag = dlc_tag_of(DLC_TAG_CHUNK_GATHER, (uint64_t)chunk);
    if (!is_full(net, chunk))
        DLC_TRY(fill_memory(net, to, 0, (size_t)chunks->rows * row * sizeof *to));
    DLC_TRY(dlc_net_sync(net));
    for (int32_t i = 1; i < net->chunks.tp->ranks; i++) {
        net_rows rows = dlc_net_chunk_rows(chunks, chunk,
                                           net_other_rank(net->chunks.tp, i));
        float *at = to + (size_t)rows.at * row;
        add_rows(net, net_other_rank(net->chunks.tp, i), tag, NULL, at, rows.count);
    }
    DLC_TRY(submit_rows(net, &chunks->gathered[chunk % 2]));
    from += (size_t)own.own * row;
    for (int32_t i = 1; i < net->chunks.tp->ranks; i++)
        add_rows(net, net_other_rank(net->chunks.tp, i), tag, from, NULL, own.count);
    DLC_TRY(submit_rows(net, &chunks->sent));
    return dlc_net_copy(net, to + (size_t)own.at * row, from,
                        (size_t)own.count * row * sizeof *to);
}

/* ---- Reducing the gradient of the input ------------------------------------------ */

/* The place of what the i-th other rank sends. */
static float *place_of_received(const dlc_net *net, float *received, int32_t i) {
    return received + (size_t)(i - 1) * (size_t)net->chunks.local_rows * row_size(net);
}

/* Begins to send each rank's rows of the gradient to it. */
static dlc_status begin_reduce(dlc_net *net, int32_t chunk) {
    net_chunks *chunks = &net->chunks;
    size_t row = row_size(net);
    float *diff = gathered(net)->diff,
          *received = dlc_net_buffer_at(net, chunks->received[0]);
    int64_t own = own_rows(net, chunk).count;
    dlc_tag tag = dlc_tag_of(DLC_TAG_CHUNK_REDUCE, (uint64_t)chunk);
    DLC_TRY(dlc_net_sync(net));
    for (int32_t i = 1; i < net->chunks.tp->ranks; i++) {
        float *at = place_of_received(net, received, i);
        add_rows(net, net_other_rank(net->chunks.tp, i), tag, NULL, at, own);
    }
    for (int32_t i = 1; i < net->chunks.tp->ranks; i++) {
        net_rows rows = dlc_net_chunk_rows(chunks, chunk,
                                           net_other_rank(net->chunks.tp, i));
        float *at = diff + (size_t)rows.at * row;
        add_rows(net, net_other_rank(net->chunks.tp, i), tag, at, NULL, rows.count);
    }
    return submit_rows(net, &chunks->reduced[chunk % 2]);
}

/* Waits for the other ranks' contributions, and sums them into the input's gradient. */
static dlc_status end_reduce(const dlc_net *net, int32_t chunk, const float *diff,
                             float *received) {
    const dlc_net_args *args = &net->args;
    const net_op *gather = gather_of(net);
    size_t row = row_size(net);
    net_rows own = own_rows(net, chunk);
    float *into = gather->edge[0].target;
    const float **part = net->chunks.part;
    dlc_net_note_activity(net, "backward", gather);
    DLC_TRY(wait_for(net, net->chunks.reduced[chunk % 2]));
    if (own.count == 0)
        return DLC_OK;
    part[args->tensor_parallel->rank] = diff + (size_t)own.at * row;
    for (int32_t i = 1; i < net->chunks.tp->ranks; i++)
        part[net_other_rank(net->chunks.tp, i)] = place_of_received(net, received, i);
    return args->device_ops->sum(args->device, args->queue, (size_t)own.count * row,
                                 part, net->chunks.tp->ranks,
                                 into + (size_t)own.own * row);
}

static int reduces_input(const dlc_net *net) {
    return gather_of(net)->runs_backward;
}

/* End the reduction of the current chunk, and of the one before it. */
static dlc_status end_current_reduce(const dlc_net *net, int32_t chunk) {
    return end_reduce(net, chunk, gathered(net)->diff,
                      dlc_net_buffer_at(net, net->chunks.received[0]));
}

static dlc_status end_previous_reduce(const dlc_net *net, int32_t chunk) {
    return end_reduce(net, chunk, dlc_net_buffer_at(net, net->chunks.next_diff),
                      dlc_net_buffer_at(net, net->chunks.received[1]));
}

/* ---- Operations ------------------------------------------------------------------ */

/* Does this rank have none of the chunk's rows, so that the operation has nothing to
 * do?
 */
static int is_idle(const dlc_net *net, const net_op *op) {
    const net_tensor *out = &net->tensor[op->output[0]];
    return out->in_chunk && out->placement == SAMPLE_SHARDED &&
           !op->ops->is_collective && own_rows(net, net->chunks.current).count == 0;
}

/* Adds a metric to that of earlier chunks. */
static dlc_status add_metric(const dlc_net *net, const net_op *op) {
    const dlc_net_args *args = &net->args;
    if (op->chunk_metric_buffer == NO_BUFFER)
        return DLC_OK;
    return args->device_ops->add(args->device, args->queue, 2,
                                 net->tensor[op->output[0]].data,
                                 dlc_net_buffer_at(net, op->chunk_metric_buffer));
}

static dlc_status chunk_forward_op(dlc_net *net, net_op *op) {
    if (is_idle(net, op))
        return DLC_OK;
    DLC_TRY(dlc_net_forward_op(net, op));
    return add_metric(net, op);
}

/* The gradients of later chunks are computed in a buffer. Pointers are reset to those
 * of the first chunk when a chunk begins. */
static void redirect_gradients(const dlc_net *net, net_op *op) {
    if (net->chunks.current == 0 || op->chunk_gradient_buffer == NO_BUFFER)
        return;
    float *to = dlc_net_buffer_at(net, op->chunk_gradient_buffer);
    for (int32_t j = 0; j < op->memory.params; j++)
        op->param_diff[j] = to + dlc_net_gradient_count(net, op, j);
}

/* Adds them to those of the first. If the operation is idle in the first chunk, its
 * gradients are set to zero there. */
static dlc_status add_gradients(const dlc_net *net, const net_op *op) {
    const dlc_net_args *args = &net->args;
    int idle = is_idle(net, op);
    for (int32_t j = 0; op->chunk_gradient_buffer != NO_BUFFER && j < op->memory.params;
         j++) {
        const dlc_net_param *param = &net->param[op->first_param + j].own;
        float *sum = net->arenas[param->set].gradients + param->offset;
        if (net->chunks.current == 0 && idle)
            DLC_TRY(args->device_ops->fill(args->device, args->queue, sum, 0,
                                           param->count * sizeof *sum));
        else if (net->chunks.current > 0 && !idle)
            DLC_TRY(args->device_ops->add(args->device, args->queue, param->count,
                                          op->param_diff[j], sum));
    }
    return DLC_OK;
}

static dlc_status chunk_backward_op(dlc_net *net, net_op *op, const net_done *done) {
    redirect_gradients(net, op);
    if (!is_idle(net, op))
        DLC_TRY(dlc_net_backward_op(net, op));
    DLC_TRY(add_gradients(net, op));
    return net->chunks.current == net->chunks.count - 1
               ? dlc_net_gradients_done(net, op, done)
               : DLC_OK;
}

/* ---- A chunk --------------------------------------------------------------------- */

static void swap_offsets(const dlc_net *net, int32_t one, int32_t other_one) {
    if (one < 0 || other_one < 0)
        return;
    size_t offset = net->buffer[one].offset;
    net->buffer[one].offset = net->buffer[other_one].offset;
    net->buffer[other_one].offset = offset;
}

/* Swaps the two buffers of each pair. */
static void swap_buffers(dlc_net *net) {
    net_chunks *chunks = &net->chunks;
    const net_tensor *tensor = gathered(net);
    int32_t received = chunks->received[0];
    swap_offsets(net, tensor->data_buffer, chunks->next_data);
    swap_offsets(net, tensor->diff_buffer, chunks->next_diff);
    chunks->received[0] = chunks->received[1];
    chunks->received[1] = received;
}

static dlc_status copy_label(const dlc_net *net, int32_t chunk, int32_t field) {
    const net_chunks *chunks = &net->chunks;
    net_rows own = own_rows(net, chunk);
    size_t row = dlc_net_field_bytes(&net->args.fields.field[field]);
    void *to = net->tensor[chunks->label[field]].data;
    const char *from = net->tensor[field].data;
    if (own.count < chunks->local_rows) /* the others do not count */
        DLC_TRY(fill_memory(net, to, 0xff, (size_t)chunks->local_rows * row));
    return dlc_net_copy(net, to, from + (size_t)own.own * row, (size_t)own.count * row);
}

static dlc_status copy_labels(const dlc_net *net, int32_t chunk) {
    for (int32_t i = 0; i < net->args.fields.count; i++)
        if (net->chunks.label[i] != NO_TENSOR)
            DLC_TRY(copy_label(net, chunk, i));
    return DLC_OK;
}

/* Operations see the rows of this chunk from now on; `sample` is the position of this
 * rank's first sample in the batch. */
static void use_chunk(dlc_net *net, int32_t chunk, int64_t sample) {
    net->chunks.current = chunk;
    net->sample = sample + own_rows(net, chunk).own;
    net->all_sample = dlc_net_chunk_sample(&net->chunks, 0);
}

/* Waits until the chunk is gathered, and begins to gather the next one. */
static dlc_status begin_chunk(dlc_net *net, int32_t chunk, int64_t sample) {
    net_chunks *chunks = &net->chunks;
    if (chunk > 1 && reduces_input(net))
        DLC_TRY(end_previous_reduce(net, chunk - 2));
    if (chunk > 0)
        swap_buffers(net);
    use_chunk(net, chunk, sample);
    dlc_net_point_from(net, chunks->first_op);
    dlc_net_note_activity(net, "forward", gather_of(net));
    DLC_TRY(wait_for(net, chunks->gathered[chunk % 2]));
    if (chunk + 1 < chunks->count)
        DLC_TRY(
            begin_gather(net, chunk + 1, dlc_net_buffer_at(net, chunks->next_data)));
    return copy_labels(net, chunk);
}

static dlc_status chunk_forward(dlc_net *net, int32_t chunk, int64_t sample) {
    DLC_TRY(begin_chunk(net, chunk, sample));
    for (int32_t i = net->chunks.first_op + 1; i < net->ops; i++)
        DLC_TRY(chunk_forward_op(net, net->op[i]));
    return DLC_OK;
}

/* The part that a chunk has in what counts of this rank's samples. */
static double chunk_share(const dlc_net *net, const net_op *op, int32_t chunk) {
    net_rows own = own_rows(net, chunk);
    double part = 0, whole = 0;
    if (!op->counted)
        return (double)own.count / (double)net->args.batch;
    for (int64_t i = 0; i < net->args.batch; i++) {
        whole += op->counted[i];
        part += i >= own.own && i < own.own + own.count ? op->counted[i] : 0;
    }
    return whole > 0 ? part / whole : 0;
}

/* The loss is the mean over all of this rank's samples. */
static dlc_status chunk_backward(dlc_net *net, int32_t chunk, const net_done *done) {
    for (int32_t i = net->chunks.first_op; i < net->ops; i++)
        if (net->op[i]->caps & DLC_LAYER_LOSS)
            net->op[i]->chunk_share = (float)chunk_share(net, net->op[i], chunk);
    for (int32_t i = net->ops - 1; i > net->chunks.first_op; i--)
        DLC_TRY(chunk_backward_op(net, net->op[i], done));
    return reduces_input(net) ? begin_reduce(net, chunk) : DLC_OK;
}

/* ---- The batch ------------------------------------------------------------------- */

static dlc_status clear_metrics(const dlc_net *net) {
    for (int32_t i = net->chunks.first_op; i < net->ops; i++)
        if (net->op[i]->chunk_metric_buffer != NO_BUFFER)
            DLC_TRY(fill_memory(net,
                                dlc_net_buffer_at(net, net->op[i]->chunk_metric_buffer),
                                0, 2 * sizeof(float)));
    return DLC_OK;
}

static dlc_status begin_chunks(dlc_net *net) {
    net->chunks.sample = net->all_sample;
    DLC_TRY(clear_metrics(net));
    return begin_gather(net, 0, gathered(net)->data);
}

/* What comes before the chunked part sees this rank's samples, as before. */
static dlc_status end_chunks(dlc_net *net, int64_t sample) {
    dlc_net_set_sample(net, sample);
    return wait_for(net, net->chunks.sent);
}

dlc_status dlc_net_chunks_forward(dlc_net *net) {
    int64_t sample = net->sample;
    if (net->chunks.count == 0)
        return DLC_OK;
    DLC_TRY(begin_chunks(net));
    for (int32_t k = 0; k < net->chunks.count; k++)
        DLC_TRY(chunk_forward(net, k, sample));
    return end_chunks(net, sample);
}

dlc_status dlc_net_chunks_train(dlc_net *net, const net_done *done) {
    int64_t sample = net->sample;
    int32_t count = net->chunks.count;
    if (count == 0)
        return DLC_OK;
    DLC_TRY(begin_chunks(net));
    for (int32_t k = 0; k < count; k++) {
        DLC_TRY(chunk_forward(net, k, sample));
        DLC_TRY(chunk_backward(net, k, done));
    }
    if (reduces_input(net) && count > 1)
        DLC_TRY(end_previous_reduce(net, count - 2));
    if (reduces_input(net))
        DLC_TRY(end_current_reduce(net, count - 1));
    return end_chunks(net, sample);
}
