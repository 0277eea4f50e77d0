/* Runs the chunked part of a net, chunk by chunk. Buffers of submitted transfers belong
 * to the progress engine until it is waited for; everything else is used by the train
 * thread and the queue. */
#include "net/batch_chunks.h"

static net_op *gather_of(const dlc_net *net) {
    return &net->op[net->chunks.first_op];
}

static net_tensor *gathered(const dlc_net *net) {
    return &net->tensor[gather_of(net)->output[0]];
}

/* The number of elements in a row. */
static size_t row_size(const dlc_net *net) {
    const dlc_shape *shape = &gathered(net)->tensor.shape;
    return (size_t)(dlc_shape_count(shape) / shape->dims[0]);
}

static int32_t ranks_of(const dlc_net *net) {
    return net->args.tensor_parallel->ranks;
}

static net_rows own_rows(const dlc_net *net, int32_t chunk) {
    return dlc_net_chunk_rows(net, chunk, net->args.tensor_parallel->rank);
}

static dlc_status copy(const dlc_net *net, void *dst, const void *src, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return bytes ? args->device_ops->copy(args->device, args->queue, dst, src, bytes)
                 : DLC_OK;
}

static dlc_status fill(const dlc_net *net, void *dst, int byte, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return args->device_ops->fill(args->device, args->queue, dst, byte, bytes);
}

static void note_activity(const dlc_net *net, const char *phase) {
    if (net->args.on_activity)
        net->args.on_activity(net->args.activity_context, phase, gather_of(net)->name);
}

/* ---- Transfers ------------------------------------------------------------------- */

static void add_transfer(dlc_net *net, int32_t *count, dlc_transfer transfer) {
    if (transfer.bytes > 0)
        net->chunks.transfer[(*count)++] = transfer;
}

static dlc_status submit(dlc_net *net, int32_t count, uint64_t *handle) {
    return dlc_progress_engine_submit(net->args.tensor_parallel->chunk_engine,
                                      net->chunks.transfer, count, handle);
}

static dlc_status wait_for(const dlc_net *net, uint64_t handle) {
    return dlc_progress_engine_wait(net->args.tensor_parallel->chunk_engine, handle);
}

/* The i-th other rank; each rank begins with the one after it, to balance the load. */
static int32_t other(const dlc_net *net, int32_t i) {
    return (net->args.tensor_parallel->rank + i) % ranks_of(net);
}

/* ---- Gathering the input --------------------------------------------------------- */

static int is_full(const dlc_net *net, int32_t chunk) {
    int64_t count = 0;
    for (int32_t r = 0; r < ranks_of(net); r++)
        count += dlc_net_chunk_rows(net, chunk, r).count;
    return count == net->chunks.rows;
}

/* Begins to gather a chunk's input into `to`, which is not in use. */
static dlc_status begin_gather(dlc_net *net, int32_t chunk, float *to) {
    net_chunks *chunks = &net->chunks;
    size_t row = row_size(net);
    float *from = net->tensor[gather_of(net)->input[0]].data;
    net_rows own = own_rows(net, chunk);
    int32_t count = 0;
    if (!is_full(net, chunk))
        DLC_TRY(fill(net, to, 0, (size_t)chunks->rows * row * sizeof *to));
    DLC_TRY(dlc_net_sync(net));
    for (int32_t i = 1; i < ranks_of(net); i++) {
        int32_t rank = other(net, i);
        net_rows rows = dlc_net_chunk_rows(net, chunk, rank);
        add_transfer(
            net, &count,
            (dlc_transfer){.peer = rank,
                           .tag = dlc_tag_of(DLC_TAG_CHUNK_GATHER, (uint64_t)chunk),
                           .to = to + (size_t)rows.at * row,
                           .bytes = (size_t)rows.count * row * sizeof *to});
    }
    DLC_TRY(submit(net, count, &chunks->gathered[chunk % 2]));
    count = 0;
    for (int32_t i = 1; i < ranks_of(net); i++)
        add_transfer(
            net, &count,
            (dlc_transfer){.peer = other(net, i),
                           .tag = dlc_tag_of(DLC_TAG_CHUNK_GATHER, (uint64_t)chunk),
                           .from = from + (size_t)own.own * row,
                           .bytes = (size_t)own.count * row * sizeof *to});
    DLC_TRY(submit(net, count, &chunks->sent));
    return copy(net, to + (size_t)own.at * row, from + (size_t)own.own * row,
                (size_t)own.count * row * sizeof *to);
}

/* ---- Reducing the gradient of the input ------------------------------------------ */

/* The place of what the i-th other rank sends. */
static float *place_of(const dlc_net *net, float *received, int32_t i) {
    return received + (size_t)(i - 1) * (size_t)net->chunks.local_rows * row_size(net);
}

/* Begins to send each rank's rows of the gradient to it. */
static dlc_status begin_reduce(dlc_net *net, int32_t chunk) {
    net_chunks *chunks = &net->chunks;
    size_t row = row_size(net);
    float *diff = gathered(net)->diff,
          *received = dlc_net_buffer_at(net, chunks->received[0]);
    net_rows own = own_rows(net, chunk);
    int32_t count = 0;
    DLC_TRY(dlc_net_sync(net));
    for (int32_t i = 1; i < ranks_of(net); i++)
        add_transfer(
            net, &count,
            (dlc_transfer){.peer = other(net, i),
                           .tag = dlc_tag_of(DLC_TAG_CHUNK_REDUCE, (uint64_t)chunk),
                           .to = place_of(net, received, i),
                           .bytes = (size_t)own.count * row * sizeof *diff});
    for (int32_t i = 1; i < ranks_of(net); i++) {
        int32_t rank = other(net, i);
        net_rows rows = dlc_net_chunk_rows(net, chunk, rank);
        add_transfer(
            net, &count,
            (dlc_transfer){.peer = rank,
                           .tag = dlc_tag_of(DLC_TAG_CHUNK_REDUCE, (uint64_t)chunk),
                           .from = diff + (size_t)rows.at * row,
                           .bytes = (size_t)rows.count * row * sizeof *diff});
    }
    return submit(net, count, &chunks->reduced[chunk % 2]);
}

/* Waits for the other ranks' contributions, and sums them into the input's gradient. */
static dlc_status end_reduce(const dlc_net *net, int32_t chunk, const float *diff,
                             float *received) {
    const dlc_net_args *args = &net->args;
    const net_op *gather = gather_of(net);
    size_t row = row_size(net);
    net_rows own = own_rows(net, chunk);
    float *into = gather->edge[0].target;
    note_activity(net, "backward");
    DLC_TRY(wait_for(net, net->chunks.reduced[chunk % 2]));
    if (own.count == 0)
        return DLC_OK;
    gather->reshard->source[args->tensor_parallel->rank] = diff + (size_t)own.at * row;
    for (int32_t i = 1; i < ranks_of(net); i++)
        gather->reshard->source[other(net, i)] = place_of(net, received, i);
    return args->device_ops->sum(args->device, args->queue, (size_t)own.count * row,
                                 gather->reshard->source, ranks_of(net),
                                 into + (size_t)own.own * row);
}

static int is_reduced(const dlc_net *net) {
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
    net_tensor *tensor = gathered(net);
    int32_t received = chunks->received[0];
    swap_offsets(net, tensor->data_buffer, chunks->next_data);
    swap_offsets(net, tensor->diff_buffer, chunks->next_diff);
    chunks->received[0] = chunks->received[1];
    chunks->received[1] = received;
    for (int32_t i = 0; i < net->tensors; i++) { /* other tensors may share them */
        net_tensor *each = &net->tensor[i];
        if (each->data_buffer >= 0 && each->data_buffer == tensor->data_buffer)
            each->data = dlc_net_buffer_at(net, each->data_buffer);
        if (each->diff_buffer >= 0 && each->diff_buffer == tensor->diff_buffer)
            each->diff = dlc_net_buffer_at(net, each->diff_buffer);
    }
}

static dlc_status copy_labels(const dlc_net *net, int32_t chunk) {
    const net_chunks *chunks = &net->chunks;
    net_rows own = own_rows(net, chunk);
    int32_t *to = net->tensor[chunks->label].data;
    const int32_t *from = net->tensor[TENSOR_LABEL].data;
    if (own.count < chunks->local_rows) /* DLC_LABEL_NONE: all bits are set */
        DLC_TRY(fill(net, to, 0xff, (size_t)chunks->local_rows * sizeof *to));
    return copy(net, to, from + own.own, (size_t)own.count * sizeof *to);
}

/* Waits until the chunk is gathered, and begins to gather the next one. */
static dlc_status begin_chunk(dlc_net *net, int32_t chunk) {
    net_chunks *chunks = &net->chunks;
    if (chunk > 1 && is_reduced(net))
        DLC_TRY(end_previous_reduce(net, chunk - 2));
    if (chunk > 0)
        swap_buffers(net);
    chunks->current = chunk;
    dlc_net_point_from(net, chunks->first_op);
    note_activity(net, "forward");
    DLC_TRY(wait_for(net, chunks->gathered[chunk % 2]));
    if (chunk + 1 < chunks->count)
        DLC_TRY(
            begin_gather(net, chunk + 1, dlc_net_buffer_at(net, chunks->next_data)));
    return copy_labels(net, chunk);
}

static dlc_status chunk_forward(dlc_net *net, int32_t chunk) {
    DLC_TRY(begin_chunk(net, chunk));
    for (int32_t i = net->chunks.first_op + 1; i < net->ops; i++)
        DLC_TRY(dlc_net_forward_op(net, i, net->chunks.iteration, net->chunks.sample));
    return DLC_OK;
}

static dlc_status clear_metrics(const dlc_net *net) {
    for (int32_t i = net->chunks.first_op; i < net->ops; i++)
        if (net->op[i].chunk_metric_buffer != NO_BUFFER)
            DLC_TRY(fill(net, dlc_net_buffer_at(net, net->op[i].chunk_metric_buffer), 0,
                         2 * sizeof(float)));
    return DLC_OK;
}

static dlc_status begin(dlc_net *net) {
    DLC_TRY(clear_metrics(net));
    return begin_gather(net, 0, gathered(net)->data);
}

dlc_status dlc_net_chunks_forward(dlc_net *net) {
    DLC_TRY(begin(net));
    for (int32_t k = 0; k < net->chunks.count; k++)
        DLC_TRY(chunk_forward(net, k));
    return wait_for(net, net->chunks.sent);
}

typedef struct callback {
    dlc_status (*done)(void *context, size_t elements);
    void *context;
} callback;

/* The loss is the mean over all of this rank's samples. */
static dlc_status chunk_backward(dlc_net *net, int32_t chunk, float loss_scale,
                                 const callback *after) {
    int is_last = chunk == net->chunks.count - 1;
    double share = (double)own_rows(net, chunk).count / (double)net->args.batch;
    for (int32_t i = net->ops - 1; i > net->chunks.first_op; i--)
        DLC_TRY(dlc_net_backward_op(net, i, loss_scale * (float)share,
                                    is_last ? after->done : NULL, after->context));
    return is_reduced(net) ? begin_reduce(net, chunk) : DLC_OK;
}

dlc_status dlc_net_chunks_train(dlc_net *net, float loss_scale,
                                dlc_status (*done)(void *context, size_t elements),
                                void *context) {
    const callback after = {done, context};
    int32_t count = net->chunks.count;
    DLC_TRY(begin(net));
    for (int32_t k = 0; k < count; k++) {
        DLC_TRY(chunk_forward(net, k));
        DLC_TRY(chunk_backward(net, k, loss_scale, &after));
    }
    if (is_reduced(net) && count > 1)
        DLC_TRY(end_previous_reduce(net, count - 2));
    if (is_reduced(net))
        DLC_TRY(end_current_reduce(net, count - 1));
    return wait_for(net, net->chunks.sent);
}
