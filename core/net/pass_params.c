/* The pass `params`: gives parameters their offsets in the arenas, in the order in
 * which backward completes them, so that a bucket is a contiguous slice. */
#include <string.h>

#include "base/memory.h"
#include "net/layer.h"
#include "net/passes.h"

/* Every parameter begins on a piece, so that its norm does not depend on where it is.
 */
static size_t align_count(size_t count) {
    return (count + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE * DLC_SQUARE_PIECE;
}

static int32_t count_params(const dlc_net *net) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->ops; i++)
        if (!net->op[i]->fused_into)
            count += net->op[i]->memory.params;
    return count;
}

static dlc_status allocate_tables(dlc_net *net, int32_t count) {
    size_t n = (size_t)count;
    net->param = dlc_alloc(n, sizeof *net->param);
    int complete = net->param != NULL;
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        net->segment[s] = dlc_alloc(n, sizeof *net->segment[s]);
        net->arenas[s].segment = net->segment[s];
        complete &= net->segment[s] != NULL;
    }
    return complete ? DLC_OK : DLC_ERR_NOMEM;
}

static const dlc_net_param *find_param(const dlc_net *net, const char *name) {
    ptrdiff_t i = dlc_names_find(&net->param_names, name);
    return i < 0 ? NULL : &net->param[i].own;
}

/* Sets the offset of the next parameter: after the others, or the one that it has in
 * the training net. */
static dlc_status place_param(const dlc_net *net, dlc_net_param *param, size_t end) {
    param->offset = end;
    if (!net->args.train_net)
        return DLC_OK;
    const dlc_net_param *same = find_param(net->args.train_net, param->name);
    if (!same || same->count != param->count || same->is_buffer != param->is_buffer ||
        same->is_frozen != param->is_frozen || same->set != param->set)
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
    int32_t index = net->arenas[param->set].segments++;
    net->segment[param->set][index] = (dlc_segment){.name = param->name,
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

static dlc_status add_param(dlc_net *net, net_op *op, int32_t index) {
    const net_layer *layer = (const net_layer *)op; /* nothing else has parameters */
    const dlc_param *from = &op->param[index];
    char *name = dlc_format("%s.%s", op->name, from->name);
    if (!name)
        return DLC_ERR_NOMEM;
    net_param *added = &net->param[net->params++];
    dlc_net_param *param = &added->own;
    *added = (net_param){.op = op, .index = index, .name = name};
    *param = (dlc_net_param){.name = name,
                             .shape = from->shape,
                             .is_buffer = !net_is_trained(op, index),
                             .is_average = (from->flags & DLC_PARAM_BUFFER) != 0,
                             .is_frozen = op->frozen,
                             .is_common = op->in_group,
                             .count = (size_t)op->memory.param_count[index],
                             .set = layer->total_channels > 0 ? DLC_PARAMS_ROWS
                                                              : DLC_PARAMS_WHOLE,
                             .whole = from->shape,
                             .first = layer->channel_begin,
                             .order = (op->node + 1) * DLC_MAX_PARAMS - 1 - index};
    if (param->set == DLC_PARAMS_ROWS)
        param->whole.dims[0] = layer->total_channels;
    DLC_TRY(dlc_names_add(&net->param_names, name, (size_t)net->params - 1));
    size_t *end = end_of_arena(&net->arenas[param->set], param);
    DLC_TRY(place_param(net, param, *end));
    *end += align_count(param->count);
    if (!param->is_buffer)
        add_segment(net, param, from);
    return DLC_OK;
}

dlc_status dlc_net_pass_params(dlc_net *net) {
    DLC_TRY(allocate_tables(net, count_params(net)));
    for (int32_t i = net->ops - 1; i >= 0; i--) {
        net_op *op = net->op[i];
        op->first_param = net->params;
        for (int32_t j = 0; !op->fused_into && j < op->memory.params; j++)
            DLC_TRY(add_param(net, op, j));
    }
    net->arenas[DLC_PARAMS_WHOLE].control_words = DLC_CONTROL_WORDS;
    net->arenas[DLC_PARAMS_WHOLE].count += DLC_CONTROL_WORDS;
    return DLC_OK;
}
