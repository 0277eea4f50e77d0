/* The memory of activations: allocates the block that the passes have laid out, once
 * for each micro-batch in flight, and points operations into it. */
#include "net/memory.h"

#include "plugin/device_objects.h"

dlc_status dlc_net_take(dlc_net *net, size_t bytes, uint32_t flags,
                        const dlc_memory **memory) {
    dlc_memory *taken = &net->memory[net->memories];
    *taken = (dlc_memory){.size = sizeof *taken};
    *memory = taken;
    if (bytes)
        DLC_TRY(dlc_device_alloc(net->args.device_ops, net->args.device, bytes, flags,
                                 taken));
    net->memories++;
    return DLC_OK;
}

void dlc_net_free_memory(dlc_net *net) {
    for (int32_t i = 0; i < net->memories; i++)
        dlc_device_free(net->args.device_ops, net->args.device, &net->memory[i]);
}

/* The distance in bytes between two sets of micro-batch buffers. */
static size_t pass_bytes(const dlc_net *net) {
    size_t mask = DLC_BUFFER_ALIGNMENT - 1;
    return (net->activation_bytes + mask) & ~mask;
}

/* The bytes of all sets of micro-batch buffers. */
static size_t memory_bytes(const dlc_net *net) {
    int32_t sets = net->args.micro_batch_buffers;
    return net->activation_bytes + (sets > 1 ? (size_t)sets - 1 : 0) * pass_bytes(net);
}

static dlc_status take_activations(dlc_net *net) {
    const dlc_memory *memory;
    size_t bytes = memory_bytes(net);
    dlc_status status = dlc_net_take(net, bytes, 0, &memory);
    net->activations = memory->base;
    if (status == DLC_ERR_NOMEM)
        return dlc_fail(status,
                        "%s (%.2f GB of activations for a batch of %lld: use a smaller "
                        "batch, or [train] recompute = yes)",
                        dlc_detail(), (double)bytes / 1e9, (long long)net->args.batch);
    return status;
}

/* A test net works in the memory of the training net if that is large enough: the two
 * never run at the same time, and nothing in it outlives a pass. */
static int can_borrow(const dlc_net *net) {
    const dlc_net *train_net = net->args.train_net;
    return train_net && net->activation_bytes <= train_net->activation_bytes;
}

/* ---- Pointers -------------------------------------------------------------------- */

/* Other tensors are where the batch or the pass has them. */
static void point_tensors(dlc_net *net) {
    for (int32_t i = 0; i < net->tensors; i++) {
        net_tensor *tensor = &net->tensor[i];
        if (tensor->data_buffer >= 0)
            tensor->data = dlc_net_buffer_at(net, tensor->data_buffer);
        if (tensor->diff_buffer >= 0)
            tensor->diff = dlc_net_buffer_at(net, tensor->diff_buffer);
        tensor->recomputed = dlc_net_buffer_at(net, tensor->recompute_buffer);
    }
}

static void point_edges(const dlc_net *net, net_op *op) {
    for (int32_t j = 0; j < op->memory.inputs; j++) {
        net_edge *edge = &op->edge[j];
        edge->target = !edge->wanted ? NULL
                       : edge->buffer == BOUNDARY_BUFFER
                           ? net->tensor[op->input[j]].diff
                           : dlc_net_buffer_at(net, edge->buffer);
    }
}

void dlc_net_point_from(dlc_net *net, int32_t first) {
    point_tensors(net);
    for (int32_t i = first; i < net->ops; i++) {
        net_op *op = net->op[i];
        if (op->fused_into)
            continue;
        point_edges(net, op);
        for (int j = 0; j < NET_RUNS; j++)
            op->scratch[j] = dlc_net_buffer_at(net, op->scratch_buffer[j]);
        if (op->ops->point)
            op->ops->point(net, op);
    }
}

dlc_status dlc_net_take_memory(dlc_net *net) {
    if (can_borrow(net))
        net->activations = net->args.train_net->activations;
    else
        DLC_TRY(take_activations(net));
    dlc_net_point_from(net, 0);
    return DLC_OK;
}

/* ---- Micro-batches --------------------------------------------------------------- */

static void point_boundaries(dlc_net *net, const dlc_net_micro_batch *batch) {
    for (int32_t i = 0; i < net->args.boundaries_in; i++) {
        net_tensor *tensor = &net->tensor[net_boundary_in(net, i)];
        tensor->data = batch->in[i];
        tensor->diff = batch->in_diff ? batch->in_diff[i] : NULL;
    }
    for (int32_t i = 0; i < net->args.boundaries_out; i++) {
        net_tensor *tensor = &net->tensor[net_boundary_out(net, i)];
        tensor->data = batch->out[i];
        tensor->diff = batch->out_diff ? batch->out_diff[i] : NULL;
    }
}

void dlc_net_set_sample(dlc_net *net, int64_t sample) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    int64_t before = tp ? tp->first_sample[tp->rank] - tp->first_sample[0] : 0;
    net->sample = sample;
    net->all_sample = sample - before;
}

/* Buffers have the same offsets in each set of micro-batch buffers. */
void dlc_net_begin_micro_batch(dlc_net *net, const dlc_net_micro_batch *batch) {
    net->micro_batch_offset = (size_t)batch->buffers * pass_bytes(net);
    point_boundaries(net, batch);
    dlc_net_point_from(net, 0);
    net->iteration = batch->iteration;
    dlc_net_set_sample(net, batch->sample);
}

float *dlc_net_activations(const dlc_net *net, size_t *count) {
    *count = memory_bytes(net) / sizeof(float);
    return (float *)(void *)net->activations;
}

/* ---- Reports --------------------------------------------------------------------- */

dlc_net_memory dlc_net_memory_plan(const dlc_net *net) {
    int owns = net->args.train_net == NULL;
    int borrowed = can_borrow(net);
    size_t count = net->arenas[DLC_PARAMS_WHOLE].count +
                   net->arenas[DLC_PARAMS_ROWS].count;
    size_t weights = owns ? count * sizeof(float) : 0;
    size_t buffers = net->arenas[DLC_PARAMS_WHOLE].buffer_count +
                     net->arenas[DLC_PARAMS_WHOLE].frozen_count +
                     net->arenas[DLC_PARAMS_ROWS].frozen_count;
    return (dlc_net_memory){.activations = borrowed ? 0 : memory_bytes(net),
                            .weights = weights,
                            .gradients = net_is_training(net) ? weights : 0,
                            .buffers = owns ? buffers * sizeof(float) : 0,
                            .reorders = net->reorders};
}
