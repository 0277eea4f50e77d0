/* The passes for batch chunks (placement.h). `chunks` finds the operations that work on
 * them, and says which tensors are in use until the last chunk. `chunk_memory` plans
 * the additional buffers of a net with batch chunks: the gathered input and its
 * gradient are double-buffered, since the next chunk is transferred while one is
 * computed, and gradients and metrics are added up over the chunks.
 *
 * In the memory plan the steps of the chunked part are adjacent, so buffers that are
 * used only there are reused by the next chunk. */
#include "net/ops.h"

/* The operation that gathers the input of the chunked part. */
static int gathers(const dlc_net *net, const net_op *op) {
    return net->tensor[op->output[0]].in_chunk && !net->tensor[op->input[0]].in_chunk;
}

dlc_status dlc_net_pass_chunks(dlc_net *net) {
    int32_t first = 0;
    while (first < net->ops && !(net->chunks.count > 0 && gathers(net, net->op[first])))
        first++;
    net->chunks.first_op = first;
    if (first == net->ops)
        return DLC_OK;
    const net_op *gather = net->op[first];
    int32_t end = net_backward_step(net, gather);
    net->tensor[gather->input[0]].kept_until = end;
    net->tensor[gather->output[0]].kept_until = end;
    for (int32_t i = 0; i < net->args.fields.count; i++) {
        int32_t label = net->chunks.label[i];
        if (label == NO_TENSOR)
            continue;
        net->tensor[i].kept_until = end;
        net->tensor[label].kept_until = end;
    }
    return DLC_OK;
}

/* Adds a buffer that is in use from the first step of the chunked part to its last. */
static dlc_status add_buffer(dlc_net *net, size_t bytes, int32_t *buffer) {
    const net_op *gather = net->op[net->chunks.first_op];
    return dlc_net_buffer_add(net, bytes, gather->index, net_backward_step(net, gather),
                              buffer);
}

/* Lets a buffer live as long as the chunked part runs, and plans the second of a pair.
 */
static dlc_status plan_second(dlc_net *net, int32_t buffer, int32_t *second) {
    const net_op *gather = net->op[net->chunks.first_op];
    int32_t first = gather->index, last = net_backward_step(net, gather);
    *second = NO_BUFFER;
    if (buffer < 0)
        return DLC_OK;
    dlc_buffer *one = &net->buffer[buffer];
    one->first = one->first < first ? one->first : first;
    one->last = one->last > last ? one->last : last;
    return add_buffer(net, one->bytes, second);
}

/* Plans two buffers for the other ranks' gradients of this rank's rows. Each chunk
 * writes a part of their sum, which is used when the last one has. */
static dlc_status plan_received(dlc_net *net) {
    net_chunks *chunks = &net->chunks;
    const net_op *gather = net->op[chunks->first_op];
    size_t row = dlc_tensor_bytes(&gather->out[0]) /
                 (size_t)gather->out[0].shape.dims[0];
    size_t rows = (size_t)(chunks->tp->ranks - 1) * (size_t)chunks->local_rows;
    chunks->received[0] = chunks->received[1] = NO_BUFFER;
    if (!gather->runs_backward)
        return DLC_OK;
    if (gather->edge[0].buffer >= 0)
        net->buffer[gather->edge[0].buffer].first = gather->index;
    DLC_TRY(add_buffer(net, rows * row, &chunks->received[0]));
    return add_buffer(net, rows * row, &chunks->received[1]);
}

dlc_status dlc_net_pass_chunk_memory(dlc_net *net) {
    net_chunks *chunks = &net->chunks;
    if (chunks->first_op == net->ops)
        return DLC_OK;
    net_tensor *gathered = &net->tensor[net->op[chunks->first_op]->output[0]];
    for (int32_t i = 0; i < net->args.fields.count; i++) {
        net_tensor *label = &net->tensor[chunks->label[i]];
        if (chunks->label[i] != NO_TENSOR)
            DLC_TRY(
                add_buffer(net, dlc_tensor_bytes(&label->tensor), &label->data_buffer));
    }
    DLC_TRY(plan_second(net, gathered->data_buffer, &chunks->next_data));
    DLC_TRY(plan_second(net, gathered->diff_buffer, &chunks->next_diff));
    DLC_TRY(plan_received(net));
    for (int32_t i = chunks->first_op; i < net->ops; i++) {
        net_op *op = net->op[i];
        if (net_is_metric(op)) /* it is read after the pass */
            DLC_TRY(dlc_net_buffer_add(net, 2 * sizeof(float), chunks->first_op,
                                       2 * net->ops - 1, &op->chunk_metric_buffer));
        if (!op->fused_into && op->runs_backward && !op->frozen)
            DLC_TRY(dlc_net_gradient_buffer_add(net, op, &op->chunk_gradient_buffer));
    }
    return DLC_OK;
}
