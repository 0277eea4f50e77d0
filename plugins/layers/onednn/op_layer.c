/* Makes, runs and frees the primitives of layers that are one each way. */
#include "op_layer.h"

#include <stdio.h>

static dlc_status make_forward(dlc_layer *layer, const op_layer_kind *kind,
                               const dlc_layout *src, const dlc_layout *dst,
                               dlc_layer_memory *memory) {
    op *forward = &((op_layer *)layer)->forward;
    context *net = layer->net;
    int train = layer->phase == DLC_PHASE_TRAIN;
    pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = kind->forward(
        layer, &env, train ? dnnl_forward_training : dnnl_forward_inference, src->md,
        dst->md, &pd);
    dlc_status status = op_init(forward, net, layer->name, "do its forward pass", st,
                                pd);
    memory->scratch_bytes = forward->scratch_bytes;
    return status;
}

dlc_status op_layer_prepare(dlc_layer *layer, const op_layer_kind *kind,
                            dlc_layer_memory *memory) {
    const dlc_layout *layout = layout_of(layer->net, &memory->in[0]);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], layout);
    layout_set(&memory->out[0], layout);
    dlc_status status = make_forward(layer, kind, layout, layout, memory);
    return status == DLC_OK && layer->phase == DLC_PHASE_TRAIN
               ? op_layer_prepare_backward(layer, kind, memory)
               : status;
}

static dlc_status make_by_channel(dlc_layer *layer, const op_layer_kind *kind,
                                  const dlc_layout *from, dlc_layer_memory *memory) {
    context *net = layer->net;
    dlc_shape as;
    const dlc_layout *to = layout_like(net, from, &memory->out[0].shape);
    const dlc_layout *src = layout_by_channel(net, from, &memory->in[0].shape, &as);
    const dlc_layout *dst = to ? layout_by_channel(net, to, &memory->out[0].shape, &as)
                               : NULL;
    return src && dst ? make_forward(layer, kind, src, dst, memory) : DLC_ERR_NOMEM;
}

dlc_status op_layer_prepare_by_channel(dlc_layer *layer, const op_layer_kind *kind,
                                       dlc_layer_memory *memory,
                                       const dlc_layout **from) {
    op *forward = &((op_layer *)layer)->forward;
    context *net = layer->net;
    const dlc_layout *in = layout_of(net, &memory->in[0]);
    if (!in)
        return DLC_ERR_NOMEM;
    dlc_status status = make_by_channel(layer, kind, in, memory);
    if (status == DLC_OK && pd_is_slow(forward->pd) && !in->last) {
        in = layout_last(net, &memory->in[0].shape, memory->in[0].dtype);
        status = in ? make_by_channel(layer, kind, in, memory) : DLC_ERR_NOMEM;
    }
    if (status != DLC_OK)
        return status;
    const dlc_layout *to = in->batch_block ? layout_like(net, in, &memory->out[0].shape)
                                           : op_layout(forward, dnnl_query_dst_md);
    if (!to)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], in);
    layout_set(&memory->out[0], to);
    *from = in;
    return DLC_OK;
}

dlc_status op_layer_prepare_backward(dlc_layer *layer, const op_layer_kind *kind,
                                     dlc_layer_memory *memory) {
    const op *forward = &((op_layer *)layer)->forward;
    op *backward = &((op_layer *)layer)->backward;
    context *net = layer->net;
    md_t workspace = op_md(forward, dnnl_query_workspace_md);
    memory->workspace_bytes = workspace ? dnnl_memory_desc_get_size(workspace) : 0;
    pd_env env = {.engine = net->engine, .attr = net->attr, .hint = forward->pd};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = kind->backward(layer, &env, op_md(forward, dnnl_query_src_md),
                                      op_md(forward, dnnl_query_dst_md), &pd);
    dlc_status status = op_init(backward, net, layer->name, "do its backward pass", st,
                                pd);
    if (status == DLC_OK && backward->scratch_bytes > memory->scratch_bytes)
        memory->scratch_bytes = backward->scratch_bytes;
    return status;
}

/* Primitives without a workspace have none to bind. */
dlc_status op_layer_forward(dlc_layer *layer, const dlc_layer_run *run) {
    return OP_RUN(&((op_layer *)layer)->forward, {DNNL_ARG_SRC, run->in[0]},
                  {DNNL_ARG_DST, run->out[0]}, {DNNL_ARG_WORKSPACE, run->workspace},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

void op_layer_describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "%s", op_name(&((op_layer *)layer)->forward));
}

void op_layer_destroy(dlc_layer *layer) {
    if (!layer)
        return;
    op_clear(&((op_layer *)layer)->forward);
    op_clear(&((op_layer *)layer)->backward);
    layer_free(layer);
}
