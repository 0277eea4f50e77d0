/* Makes the primitives of layers that work channel by channel. */
#include "by_channel.h"

static dlc_status make_forward(const dlc_layer *layer, const by_channel_kind *kind,
                               const dlc_layer_memory *memory, const dlc_layout *from,
                               op *forward) {
    context *net = layer->net;
    int train = layer->phase == DLC_PHASE_TRAIN;
    dlc_shape as;
    const dlc_layout *to = layout_like(net, from, &memory->out[0].shape);
    const dlc_layout *src = layout_by_channel(net, from, &memory->in[0].shape, &as);
    const dlc_layout *dst = to ? layout_by_channel(net, to, &memory->out[0].shape, &as)
                               : NULL;
    if (!src || !dst)
        return DLC_ERR_NOMEM;
    pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = kind->forward(
        layer, &env, train ? dnnl_forward_training : dnnl_forward_inference, src->md,
        dst->md, &pd);
    return op_init(forward, net, layer->name, "do its forward pass", st, pd);
}

dlc_status by_channel_prepare_forward(dlc_layer *layer, const by_channel_kind *kind,
                                      dlc_layer_memory *memory, op *forward,
                                      const dlc_layout **from) {
    context *net = layer->net;
    const dlc_layout *in = layout_of(net, &memory->in[0]);
    if (!in)
        return DLC_ERR_NOMEM;
    dlc_status status = make_forward(layer, kind, memory, in, forward);
    if (status == DLC_OK && pd_is_slow(forward->pd) && !in->last) {
        in = layout_last(net, &memory->in[0].shape, memory->in[0].dtype);
        status = in ? make_forward(layer, kind, memory, in, forward) : DLC_ERR_NOMEM;
    }
    if (status != DLC_OK)
        return status;
    const dlc_layout *to = in->batch_block ? layout_like(net, in, &memory->out[0].shape)
                                           : op_layout(forward, dnnl_query_dst_md);
    if (!to)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], in);
    layout_set(&memory->out[0], to);
    memory->scratch_bytes = forward->scratch_bytes;
    *from = in;
    return DLC_OK;
}

dlc_status by_channel_prepare_backward(dlc_layer *layer, const by_channel_kind *kind,
                                       dlc_layer_memory *memory, const op *forward,
                                       op *backward) {
    context *net = layer->net;
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
