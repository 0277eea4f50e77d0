/* Builds a net by passes, takes its memory and frees it: the arenas of parameters with
 * their initial values, plain copies of these for checkpoints, and the block of
 * activations, into which operations are pointed. */
#include <math.h>

#include "base/memory.h"
#include "base/random.h"
#include "net/ops.h"
#include "plugin/device_objects.h"

/* In their order. An outline has shapes, gradients and parameters, but no layouts and
 * no memory. */
static const struct {
    dlc_net_pass_call *pass;
    int in_outline;
} PASSES[] = {
    {dlc_net_pass_stage, 1},        /* takes this rank's layers from the graph */
    {dlc_net_pass_shard, 1},        /* places tensors among the ranks */
    {dlc_net_pass_infer, 1},        /* creates the layers, infers shapes */
    {dlc_net_pass_fuse, 0},         /* lets layers do the work of others */
    {dlc_net_pass_gradients, 1},    /* finds the gradients that are needed */
    {dlc_net_pass_layouts, 0},      /* agrees on layouts */
    {dlc_net_pass_params, 1},       /* gives parameters their places in the arenas */
    {dlc_net_pass_fork_sums, 0},    /* says how gradients are added up */
    {dlc_net_pass_recompute, 0},    /* marks what is not kept for backward */
    {dlc_net_pass_chunks, 0},       /* marks what outlives a batch chunk */
    {dlc_net_pass_memory, 0},       /* plans buffers and their lifetimes */
    {dlc_net_pass_chunk_memory, 0}, /* plans what batch chunks need besides */
    {dlc_net_pass_offsets, 0},      /* lets buffers share memory */
};

static void set_fields(dlc_net_args *args) {
    if (args->fields.count)
        return;
    args->fields.count = 2;
    args->fields.field[DLC_FIELD_DATA] = (dlc_net_field){
        .name = "data", .dtype = DLC_F32, .shape = args->sample};
    args->fields.field[DLC_FIELD_LABEL] = (dlc_net_field){
        .name = "label", .is_label = 1, .dtype = DLC_I32};
}

dlc_status dlc_net_build(const dlc_net_args *args, dlc_net **net) {
    dlc_net *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    set_fields(&made->args);
    dlc_status status = DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < sizeof PASSES / sizeof *PASSES; i++)
        if (PASSES[i].in_outline || !args->outline)
            status = PASSES[i].pass(made);
    if (status == DLC_OK)
        status = dlc_net_find_reads(made); /* for reports */
    if (status != DLC_OK) {
        dlc_net_free(made);
        return status;
    }
    *net = made;
    return DLC_OK;
}

/* ---- Activations ----------------------------------------------------------------- */

/* Allocates memory that the net owns; 0 bytes are allowed. `flags`: passed to the
 * device's `alloc`. */
static dlc_status take_memory(dlc_net *net, size_t bytes, uint32_t flags,
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

/* The distance in bytes between two sets of micro-batch buffers. */
static size_t set_bytes(const dlc_net *net) {
    return net_align(net->activation_bytes);
}

/* The bytes of all sets of micro-batch buffers. */
static size_t memory_bytes(const dlc_net *net) {
    int32_t sets = net->args.micro_batch_buffers;
    return net->activation_bytes + (sets > 1 ? (size_t)sets - 1 : 0) * set_bytes(net);
}

static dlc_status take_activations(dlc_net *net) {
    const dlc_memory *memory;
    size_t bytes = memory_bytes(net);
    dlc_status status = take_memory(net, bytes, 0, &memory);
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
    net->micro_batch_offset = (size_t)batch->buffers * set_bytes(net);
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

/* ---- Initial values -------------------------------------------------------------- */

/* Xavier: Glorot and Bengio 2010, eq. 16 with the fan-in alone, as Caffe does it.
 * MSRA: He et al. 2015, eq. 10. */
static void fill_plain(const dlc_filler *filler, int64_t fan_in, dlc_random *random,
                       size_t count, float *plain) {
    double fan = fan_in > 0 ? (double)fan_in : 1;
    double low = filler->a, high = filler->b, deviation = filler->a, mean = filler->b;
    int is_normal = filler->kind == DLC_FILL_GAUSSIAN || filler->kind == DLC_FILL_MSRA;
    if (filler->kind == DLC_FILL_XAVIER) {
        high = sqrt(3.0 / fan);
        low = -high;
    } else if (filler->kind == DLC_FILL_MSRA) {
        deviation = sqrt(2.0 / fan);
        mean = 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (filler->kind == DLC_FILL_CONSTANT)
            plain[i] = (float)filler->a;
        else if (is_normal)
            plain[i] = (float)(mean + deviation * (double)dlc_random_normal(random));
        else
            plain[i] = (float)(low + (high - low) * (double)dlc_random_uniform(random));
    }
}

static dlc_status fill_param(dlc_net *net, int32_t i) {
    const net_op *op = net->param[i].op;
    const dlc_param *from = &op->param[net->param[i].index];
    DLC_TRY(net_note_set_up(net, op));
    dlc_filler filler = {.kind = DLC_FILL_CONSTANT};
    if (from->filler)
        DLC_TRY(dlc_filler_parse(from->filler, &filler));
    const dlc_net_param *param = &net->param[i].own;
    size_t count = (size_t)dlc_shape_count(&param->whole);
    float *plain = dlc_alloc(count, sizeof *plain);
    if (!plain)
        return DLC_ERR_NOMEM;
    /* Each parameter has a stream of its own, so that it does not depend on the others.
     * A divided parameter is drawn completely, so that its rows do not depend on the
     * number of ranks. */
    uint64_t stream = (uint64_t)op->node * DLC_MAX_PARAMS +
                      (uint64_t)net->param[i].index;
    dlc_random random = dlc_random_make(net->args.seed, stream);
    fill_plain(&filler, from->fan_in, &random, count, plain);
    size_t row = param->set == DLC_PARAMS_ROWS ? count / (size_t)param->whole.dims[0]
                                               : 0;
    dlc_status status = dlc_net_param_import(net, i, plain + (size_t)param->first * row,
                                             dlc_net_param_arena(net, i));
    dlc_free(plain);
    return status;
}

/* ---- Arenas ---------------------------------------------------------------------- */

static dlc_status take_arena(dlc_net *net, size_t count, uint32_t flags, float **arena,
                             const dlc_memory **memory) {
    DLC_TRY(take_memory(net, count * sizeof(float), flags, memory));
    *arena = (*memory)->base;
    return DLC_OK;
}

static dlc_status take_arenas(dlc_net *net, uint32_t flags, dlc_arenas *arenas) {
    const dlc_memory *memory;
    DLC_TRY(take_arena(net, arenas->count, flags, &arenas->weights,
                       &arenas->weight_memory));
    DLC_TRY(take_arena(net, arenas->buffer_count, flags, &arenas->buffers, &memory));
    DLC_TRY(take_arena(net, arenas->frozen_count, flags, &arenas->frozen, &memory));
    return net_is_training(net)
               ? take_arena(net, arenas->count, flags, &arenas->gradients,
                            &arenas->gradient_memory)
               : DLC_OK;
}

/* A test net reads the weights of the training net. */
static dlc_status borrow_params(dlc_net *net) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        const dlc_arenas *from = &net->args.train_net->arenas[s];
        net->arenas[s].weights = from->weights;
        net->arenas[s].buffers = from->buffers;
        net->arenas[s].frozen = from->frozen;
    }
    return DLC_OK;
}

static dlc_status take_params(dlc_net *net) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++)
        DLC_TRY(take_arenas(net, net->args.shared[s] ? DLC_MEM_SHARED : 0,
                            &net->arenas[s]));
    for (int32_t i = 0; i < net->params; i++)
        DLC_TRY(fill_param(net, i));
    return DLC_OK;
}

/* ---- Plain copies ---------------------------------------------------------------- */

static dlc_status copy_param(const dlc_net *net, int32_t i, float *to,
                             const float *from) {
    return net->args.device_ops->copy(net->args.device, NULL, to, from,
                                      net->param[i].own.count * sizeof(float));
}

dlc_status dlc_net_param_import(dlc_net *net, int32_t i, const float *plain,
                                float *arena) {
    const net_layer *layer = (const net_layer *)net->param[i].op;
    float *own = arena + net->param[i].own.offset;
    DLC_TRY(dlc_net_sync(net));
    if (!DLC_CAN(layer->calls, param_import))
        return copy_param(net, i, own, plain);
    return layer->calls->param_import(layer->layer, net->param[i].index, plain, own);
}

dlc_status dlc_net_param_export(dlc_net *net, int32_t i, const float *arena,
                                float *plain) {
    const net_layer *layer = (const net_layer *)net->param[i].op;
    const float *own = arena + net->param[i].own.offset;
    DLC_TRY(dlc_net_sync(net));
    if (!DLC_CAN(layer->calls, param_export))
        return copy_param(net, i, plain, own);
    return layer->calls->param_export(layer->layer, net->param[i].index, own, plain);
}

/* ---- Allocating and freeing ------------------------------------------------------ */

dlc_status dlc_net_allocate(dlc_net *net) {
    DLC_TRY(net->args.train_net ? borrow_params(net) : take_params(net));
    if (can_borrow(net))
        net->activations = net->args.train_net->activations;
    else
        DLC_TRY(take_activations(net));
    dlc_net_point_from(net, 0);
    return DLC_OK;
}

void dlc_net_free(dlc_net *net) {
    if (!net)
        return;
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i])
            dlc_net_op_free(net->op[i]);
    for (int32_t i = 0; i < net->families; i++)
        net->family[i].family->close(net->family[i].context);
    for (int32_t i = 0; i < net->params; i++)
        dlc_free(net->param[i].name);
    for (int32_t i = 0; i < net->memories; i++)
        dlc_device_free(net->args.device_ops, net->args.device, &net->memory[i]);
    dlc_net_chunks_close(&net->chunks);
    dlc_names_free(&net->param_names);
    dlc_free(net->param);
    dlc_free(net->segment[DLC_PARAMS_WHOLE]);
    dlc_free(net->segment[DLC_PARAMS_ROWS]);
    dlc_free(net->buffer);
    dlc_free(net->family);
    dlc_free(net->reads);
    dlc_free(net->tensor);
    dlc_free(net->of_node);
    dlc_free(net->op);
    dlc_free(net);
}
