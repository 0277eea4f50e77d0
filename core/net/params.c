/* The parameters of a net: their offsets in the arenas, in the order in which backward
 * completes them; their initial values; plain copies for checkpoints. */
#include "base/memory.h"
#include "base/random.h"
#include "net/internal.h"

#include <math.h>
#include <string.h>

/* In elements: every parameter begins on a cache line. */
#define PARAM_ALIGNMENT 16

static size_t align_count(size_t count) {
    return (count + PARAM_ALIGNMENT - 1) / PARAM_ALIGNMENT * PARAM_ALIGNMENT;
}

static int32_t count_params(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i].fused_into == NO_OP)
            count += net->op[i].memory.params;
    return count;
}

static dlc_status allocate_tables(dlc_net *net, int32_t count) {
    size_t n = (size_t)count;
    net->param = dlc_alloc(n, sizeof *net->param);
    net->param_op = dlc_alloc(n, sizeof *net->param_op);
    net->param_index = dlc_alloc(n, sizeof *net->param_index);
    net->param_name = dlc_alloc(n, sizeof *net->param_name);
    net->segment = dlc_alloc(n, sizeof *net->segment);
    net->sharded_segment = dlc_alloc(n, sizeof *net->sharded_segment);
    if (!net->param || !net->param_op || !net->param_index || !net->param_name ||
        !net->segment || !net->sharded_segment)
        return DLC_ERR_NOMEM;
    return DLC_OK;
}

static const dlc_net_param *find_param(const dlc_net *net, const char *name) {
    for (int32_t i = 0; i < net->params; i++)
        if (strcmp(net->param[i].name, name) == 0)
            return &net->param[i];
    return NULL;
}

/* Sets the offset of the next parameter: after the others, or the one that it has in
 * the training net. */
static dlc_status place_param(const dlc_net *net, dlc_net_param *param, size_t end) {
    param->offset = end;
    if (!net->args.train_net)
        return DLC_OK;
    const dlc_net_param *same = find_param(net->args.train_net, param->name);
    if (!same || same->count != param->count || same->is_buffer != param->is_buffer ||
        same->is_frozen != param->is_frozen || same->is_sharded != param->is_sharded)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: a test needs this parameter, but training does not have it in the same "
            "size; let the layer take part in both phases",
            param->name);
    param->offset = same->offset;
    return DLC_OK;
}

static void add_segment(dlc_net *net, const dlc_net_param *param,
                        const dlc_param *from) {
    dlc_arenas *arenas = param->is_sharded ? &net->sharded_arenas : &net->arenas;
    dlc_segment *segment = param->is_sharded ? net->sharded_segment : net->segment;
    segment[arenas->segments++] = (dlc_segment){.name = param->name,
                                                .offset = param->offset,
                                                .count = param->count,
                                                .lr_mult = from->lr_mult,
                                                .decay_mult = from->decay_mult};
}

static size_t *end_of_arena(dlc_arenas *arenas, const dlc_net_param *param) {
    if (param->is_frozen)
        return &arenas->frozen_count;
    return param->is_buffer ? &arenas->buffer_count : &arenas->count;
}

static dlc_status add_param(dlc_net *net, int32_t op_index, int32_t index) {
    const net_op *op = &net->op[op_index];
    const dlc_param *from = &op->param[index];
    int32_t at = net->params;
    dlc_net_param *param = &net->param[at];
    net->param_name[at] = dlc_format("%s.%s", op->name, from->name);
    if (!net->param_name[at])
        return DLC_ERR_NOMEM;
    net->param_op[at] = op_index;
    net->param_index[at] = index;
    net->params++;

    *param = (dlc_net_param){.name = net->param_name[at],
                             .shape = from->shape,
                             .is_buffer = !net_is_trained(op, index),
                             .is_average = (from->flags & DLC_PARAM_BUFFER) != 0,
                             .is_frozen = op->frozen,
                             .count = (size_t)op->memory.param_count[index],
                             .is_sharded = op->total_channels > 0,
                             .whole = from->shape,
                             .first = op->channel_begin,
                             .order = (op->node + 1) * DLC_MAX_PARAMS - 1 - index};
    if (param->is_sharded)
        param->whole.dims[0] = op->total_channels;
    dlc_arenas *arenas = param->is_sharded ? &net->sharded_arenas : &net->arenas;
    size_t *end = end_of_arena(arenas, param);
    DLC_TRY(place_param(net, param, *end));
    *end += align_count(param->count);
    if (!param->is_buffer)
        add_segment(net, param, from);
    return DLC_OK;
}

dlc_status dlc_net_lay_out_params(dlc_net *net) {
    DLC_TRY(allocate_tables(net, count_params(net)));
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        net_op *op = &net->op[i];
        op->first_param = net->params;
        for (int32_t j = 0; op->fused_into == NO_OP && j < op->memory.params; j++)
            DLC_TRY(add_param(net, i, j));
    }
    net->arenas.control_words = DLC_CONTROL_WORDS;
    net->arenas.count += DLC_CONTROL_WORDS;
    net->arenas.segment = net->segment;
    net->sharded_arenas.segment = net->sharded_segment;
    return DLC_OK;
}

/* ---- Initial values ---------------------------------------------------------- */

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
    const net_op *op = &net->op[net->param_op[i]];
    const dlc_param *from = &op->param[net->param_index[i]];
    dlc_filler filler = {.kind = DLC_FILL_CONSTANT};
    if (from->filler)
        DLC_TRY(dlc_filler_parse(from->filler, &filler));
    const dlc_net_param *param = &net->param[i];
    size_t count = (size_t)dlc_shape_count(&param->whole);
    float *plain = dlc_alloc(count, sizeof *plain);
    if (!plain)
        return DLC_ERR_NOMEM;
    /* Each parameter has a stream of its own, so that it does not depend on the others.
     * A sharded parameter is drawn completely, so that its rows do not depend on the
     * number of ranks. */
    uint64_t stream = (uint64_t)op->node * DLC_MAX_PARAMS +
                      (uint64_t)net->param_index[i];
    dlc_random random = dlc_random_make(net->args.seed, stream);
    fill_plain(&filler, from->fan_in, &random, count, plain);
    size_t row = param->is_sharded ? count / (size_t)param->whole.dims[0] : 0;
    dlc_status status = dlc_net_param_import(net, i, plain + (size_t)param->first * row,
                                             dlc_net_param_arena(net, i));
    dlc_free(plain);
    return status;
}

static dlc_status take(dlc_net *net, size_t count, int shared, dlc_memory *memory,
                       float **arena) {
    *memory = (dlc_memory){.size = sizeof *memory};
    if (!count)
        return DLC_OK;
    DLC_TRY(net->args.device_ops->alloc(net->args.device, count * sizeof(float),
                                        shared ? DLC_MEM_SHARED : 0, memory));
    *arena = memory->base;
    return DLC_OK;
}

/* Sharded parameters need no shared memory: only this rank reads them. */
static dlc_status take_sharded(dlc_net *net) {
    dlc_arenas *arenas = &net->sharded_arenas;
    DLC_TRY(take(net, arenas->count, 0, &net->sharded_weights, &arenas->weights));
    DLC_TRY(take(net, arenas->frozen_count, 0, &net->sharded_frozen, &arenas->frozen));
    if (net->args.phase == DLC_PHASE_TRAIN)
        DLC_TRY(
            take(net, arenas->count, 0, &net->sharded_gradients, &arenas->gradients));
    arenas->weight_memory = &net->sharded_weights;
    arenas->gradient_memory = &net->sharded_gradients;
    return DLC_OK;
}

dlc_status dlc_net_take_params(dlc_net *net) {
    dlc_arenas *arenas = &net->arenas;
    int shared = net->args.shared;
    if (net->args.train_net) {
        const dlc_net *from = net->args.train_net;
        arenas->weights = from->arenas.weights;
        arenas->buffers = from->arenas.buffers;
        arenas->frozen = from->arenas.frozen;
        net->sharded_arenas.weights = from->sharded_arenas.weights;
        net->sharded_arenas.frozen = from->sharded_arenas.frozen;
        return DLC_OK;
    }
    DLC_TRY(take(net, arenas->count, shared, &net->weights, &arenas->weights));
    DLC_TRY(take(net, arenas->buffer_count, shared, &net->buffers, &arenas->buffers));
    DLC_TRY(take(net, arenas->frozen_count, shared, &net->frozen, &arenas->frozen));
    if (net->args.phase == DLC_PHASE_TRAIN)
        DLC_TRY(take(net, arenas->count, shared, &net->gradients, &arenas->gradients));
    arenas->weight_memory = &net->weights;
    arenas->gradient_memory = &net->gradients;
    DLC_TRY(take_sharded(net));
    for (int32_t i = 0; i < net->params; i++)
        DLC_TRY(fill_param(net, i));
    return DLC_OK;
}

/* ---- Plain copies ------------------------------------------------------------ */

dlc_status dlc_net_param_import(dlc_net *net, int32_t i, const float *plain,
                                float *arena) {
    const net_op *op = &net->op[net->param_op[i]];
    float *own = arena + net->param[i].offset;
    DLC_TRY(dlc_net_sync(net));
    if (DLC_CAN(op->ops, param_import))
        return op->ops->param_import(op->layer, net->param_index[i], plain, own);
    return net->args.device_ops->copy(net->args.device, NULL, own, plain,
                                      net->param[i].count * sizeof(float));
}

dlc_status dlc_net_param_export(dlc_net *net, int32_t i, const float *arena,
                                float *plain) {
    const net_op *op = &net->op[net->param_op[i]];
    const float *own = arena + net->param[i].offset;
    DLC_TRY(dlc_net_sync(net));
    if (DLC_CAN(op->ops, param_export))
        return op->ops->param_export(op->layer, net->param_index[i], own, plain);
    return net->args.device_ops->copy(net->args.device, NULL, plain, own,
                                      net->param[i].count * sizeof(float));
}

const dlc_arenas *dlc_net_arenas(const dlc_net *net) {
    return &net->arenas;
}

const dlc_arenas *dlc_net_sharded_arenas(const dlc_net *net) {
    return &net->sharded_arenas;
}

int32_t dlc_net_params(const dlc_net *net) {
    return net->params;
}

const dlc_net_param *dlc_net_param_at(const dlc_net *net, int32_t i) {
    return &net->param[i];
}

float *dlc_net_param_arena(const dlc_net *net, int32_t i) {
    const dlc_net_param *param = &net->param[i];
    const dlc_arenas *arenas = param->is_sharded ? &net->sharded_arenas : &net->arenas;
    if (param->is_frozen)
        return arenas->frozen;
    return param->is_buffer ? arenas->buffers : arenas->weights;
}
