/* The memory of a net's parameters: the arenas, the initial values in them, and plain
 * copies for checkpoints. */
#include <math.h>

#include "base/memory.h"
#include "base/random.h"
#include "net/layer.h"
#include "net/memory.h"

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

/* ---- Arenas ------------------------------------------------------------------ */

static dlc_status take(dlc_net *net, size_t count, uint32_t flags, float **arena,
                       const dlc_memory **memory) {
    DLC_TRY(dlc_net_take(net, count * sizeof(float), flags, memory));
    *arena = (*memory)->base;
    return DLC_OK;
}

static dlc_status take_arenas(dlc_net *net, uint32_t flags, dlc_arenas *arenas) {
    const dlc_memory *memory;
    DLC_TRY(take(net, arenas->count, flags, &arenas->weights, &arenas->weight_memory));
    DLC_TRY(take(net, arenas->buffer_count, flags, &arenas->buffers, &memory));
    DLC_TRY(take(net, arenas->frozen_count, flags, &arenas->frozen, &memory));
    return net_is_training(net) ? take(net, arenas->count, flags, &arenas->gradients,
                                       &arenas->gradient_memory)
                                : DLC_OK;
}

static void borrow_arenas(const dlc_arenas *from, dlc_arenas *arenas) {
    arenas->weights = from->weights;
    arenas->buffers = from->buffers;
    arenas->frozen = from->frozen;
}

dlc_status dlc_net_take_params(dlc_net *net) {
    if (net->args.train_net) {
        for (int32_t s = 0; s < DLC_PARAM_SETS; s++)
            borrow_arenas(&net->args.train_net->arenas[s], &net->arenas[s]);
        return DLC_OK;
    }
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++)
        DLC_TRY(take_arenas(net, net->args.shared[s] ? DLC_MEM_SHARED : 0,
                            &net->arenas[s]));
    for (int32_t i = 0; i < net->params; i++)
        DLC_TRY(fill_param(net, i));
    return DLC_OK;
}

/* ---- Plain copies ------------------------------------------------------------ */

static const net_layer *layer_of(const dlc_net *net, int32_t param) {
    return (const net_layer *)net->param[param].op;
}

dlc_status dlc_net_param_import(dlc_net *net, int32_t i, const float *plain,
                                float *arena) {
    const net_layer *layer = layer_of(net, i);
    float *own = arena + net->param[i].own.offset;
    DLC_TRY(dlc_net_sync(net));
    if (DLC_CAN(layer->calls, param_import))
        return layer->calls->param_import(layer->layer, net->param[i].index, plain,
                                          own);
    return net->args.device_ops->copy(net->args.device, NULL, own, plain,
                                      net->param[i].own.count * sizeof(float));
}

dlc_status dlc_net_param_export(dlc_net *net, int32_t i, const float *arena,
                                float *plain) {
    const net_layer *layer = layer_of(net, i);
    const float *own = arena + net->param[i].own.offset;
    DLC_TRY(dlc_net_sync(net));
    if (DLC_CAN(layer->calls, param_export))
        return layer->calls->param_export(layer->layer, net->param[i].index, own,
                                          plain);
    return net->args.device_ops->copy(net->args.device, NULL, plain, own,
                                      net->param[i].own.count * sizeof(float));
}
