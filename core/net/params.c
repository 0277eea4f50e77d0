/* Parameters: their places in the arenas, in the order in which backward finishes
 * them; their first values; plain copies for checkpoints. */
#include "base/memory.h"
#include "base/random.h"
#include "net/internal.h"

#include <math.h>
#include <string.h>

/* Elements: every parameter begins on a cache line. */
#define PARAM_ALIGNMENT 16

static size_t align_count(size_t count) {
    return (count + PARAM_ALIGNMENT - 1) / PARAM_ALIGNMENT * PARAM_ALIGNMENT;
}

static int32_t count_params(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i].absorbed_by == NO_OP)
            count += net->op[i].plan.params;
    return count;
}

static dlc_status allocate_tables(dlc_net *net, int32_t count) {
    size_t n = (size_t)count;
    net->param = dlc_alloc(n, sizeof *net->param);
    net->param_op = dlc_alloc(n, sizeof *net->param_op);
    net->param_index = dlc_alloc(n, sizeof *net->param_index);
    net->param_name = dlc_alloc(n, sizeof *net->param_name);
    net->segment = dlc_alloc(n, sizeof *net->segment);
    net->split_segment = dlc_alloc(n, sizeof *net->split_segment);
    if (!net->param || !net->param_op || !net->param_index || !net->param_name ||
        !net->segment || !net->split_segment)
        return DLC_ERR_NOMEM;
    return DLC_OK;
}

static const dlc_net_param *find_param(const dlc_net *net, const char *name) {
    for (int32_t i = 0; i < net->params; i++)
        if (strcmp(net->param[i].name, name) == 0)
            return &net->param[i];
    return NULL;
}

/* Where the next parameter begins: behind the others, or where the twin has it. */
static dlc_status place_param(const dlc_net *net, dlc_net_param *param, size_t end) {
    param->offset = end;
    if (!net->args.twin)
        return DLC_OK;
    const dlc_net_param *same = find_param(net->args.twin, param->name);
    if (!same || same->count != param->count || same->is_buffer != param->is_buffer ||
        same->is_split != param->is_split)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: a test needs this parameter, and training does not have it "
            "in the same size; give the layer both phases",
            param->name);
    param->offset = same->offset;
    return DLC_OK;
}

static void add_segment(dlc_net *net, const dlc_net_param *param,
                        const dlc_param *from) {
    dlc_arenas *arenas = param->is_split ? &net->split_arenas : &net->arenas;
    dlc_segment *segment = param->is_split ? net->split_segment : net->segment;
    segment[arenas->segments++] = (dlc_segment){.size = sizeof(dlc_segment),
                                                .name = param->name,
                                                .offset = param->offset,
                                                .count = param->count,
                                                .rate = from->rate,
                                                .decay = from->decay};
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
                             .is_buffer = (from->flags & DLC_PARAM_BUFFER) != 0,
                             .count = (size_t)from->count,
                             .is_split = op->slice_whole > 0,
                             .whole = from->shape,
                             .first = op->slice_begin,
                             .order = (op->node + 1) * DLC_MAX_PARAMS - 1 - index};
    if (param->is_split)
        param->whole.dims[0] = op->slice_whole;
    dlc_arenas *arenas = param->is_split ? &net->split_arenas : &net->arenas;
    size_t *end = param->is_buffer ? &arenas->buffer_count : &arenas->count;
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
        for (int32_t j = 0; op->absorbed_by == NO_OP && j < op->plan.params; j++)
            DLC_TRY(add_param(net, i, j));
    }
    net->arenas.tail = DLC_ARENA_TAIL;
    net->arenas.count += DLC_ARENA_TAIL;
    net->arenas.segment = net->segment;
    net->split_arenas.segment = net->split_segment;
    return DLC_OK;
}

/* ---- First values ------------------------------------------------------------ */

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
    /* A stream a parameter: what one draws doesn't move the others. Of a split one all
     * is drawn, so that its rows are those of the whole. */
    uint64_t stream = (uint64_t)op->node * DLC_MAX_PARAMS +
                      (uint64_t)net->param_index[i];
    dlc_random random = dlc_random_make(net->args.seed, stream);
    fill_plain(&filler, from->fan_in, &random, count, plain);
    size_t row = param->is_split ? count / (size_t)param->whole.dims[0] : 0;
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

/* Nobody but this rank looks at the rows that it has of split layers. */
static dlc_status take_split(dlc_net *net) {
    dlc_arenas *arenas = &net->split_arenas;
    DLC_TRY(take(net, arenas->count, 0, &net->split_weights, &arenas->weights));
    if (net->args.phase == DLC_PHASE_TRAIN)
        DLC_TRY(take(net, arenas->count, 0, &net->split_gradients, &arenas->gradients));
    arenas->weight_memory = &net->split_weights;
    arenas->gradient_memory = &net->split_gradients;
    return DLC_OK;
}

dlc_status dlc_net_take_params(dlc_net *net) {
    dlc_arenas *arenas = &net->arenas;
    int shared = net->args.shared;
    if (net->args.twin) {
        arenas->weights = net->args.twin->arenas.weights;
        arenas->buffers = net->args.twin->arenas.buffers;
        net->split_arenas.weights = net->args.twin->split_arenas.weights;
        return DLC_OK;
    }
    DLC_TRY(take(net, arenas->count, shared, &net->weights, &arenas->weights));
    DLC_TRY(take(net, arenas->buffer_count, shared, &net->buffers, &arenas->buffers));
    if (net->args.phase == DLC_PHASE_TRAIN)
        DLC_TRY(take(net, arenas->count, shared, &net->gradients, &arenas->gradients));
    arenas->weight_memory = &net->weights;
    arenas->gradient_memory = &net->gradients;
    DLC_TRY(take_split(net));
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

const dlc_arenas *dlc_net_split_arenas(const dlc_net *net) {
    return &net->split_arenas;
}

int32_t dlc_net_params(const dlc_net *net) {
    return net->params;
}

const dlc_net_param *dlc_net_param_at(const dlc_net *net, int32_t i) {
    return &net->param[i];
}

float *dlc_net_param_arena(const dlc_net *net, int32_t i) {
    if (net->param[i].is_split)
        return net->split_arenas.weights;
    return net->param[i].is_buffer ? net->arenas.buffers : net->arenas.weights;
}
