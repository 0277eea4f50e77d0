/* softmax: turns scores into probabilities that add up to one along an axis. */
#include "../shared/join.h"
#include "onednn.h"

#include <stdio.h>

typedef struct softmax {
    axis_layer head;
    op forward, backward;
} softmax;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return axis_layer_alloc(args, sizeof(softmax), out);
}

static void destroy(dlc_layer *layer) {
    if (!layer)
        return;
    op_clear(&((softmax *)layer)->forward);
    op_clear(&((softmax *)layer)->backward);
    layer_free(layer);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    softmax *soft = (softmax *)layer;
    context *net = layer->net;
    const dlc_layout *layout = NULL;
    dlc_status status = same_layout(layer, memory, &layout);
    if (status != DLC_OK)
        return status;
    int train = layer->phase == DLC_PHASE_TRAIN;
    pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = pd_softmax_forward(
        &env, train ? dnnl_forward_training : dnnl_forward_inference, soft->head.axis,
        layout->md, &pd);
    status = op_init(&soft->forward, net, layer->name, "do its forward pass", st, pd);
    if (status != DLC_OK)
        return status;
    memory->scratch_bytes = soft->forward.scratch_bytes;
    memory->in_place = 1;
    if (!train)
        return DLC_OK;
    env.hint = soft->forward.pd;
    st = pd_softmax_backward(&env, soft->head.axis, layout->md, &pd);
    status = op_init(&soft->backward, net, layer->name, "do its backward pass", st, pd);
    if (status == DLC_OK && soft->backward.scratch_bytes > memory->scratch_bytes)
        memory->scratch_bytes = soft->backward.scratch_bytes;
    memory->reads_out = 1;
    return status;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    return OP_RUN(&((softmax *)layer)->forward, {DNNL_ARG_SRC, run->in[0]},
                  {DNNL_ARG_DST, run->out[0]}, {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (!run->in_diff[0])
        return DLC_OK;
    return OP_RUN(&((softmax *)layer)->backward, {DNNL_ARG_DST, run->out[0]},
                  {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "%s", op_name(&((softmax *)layer)->forward));
}

const dlc_layer_ops softmax_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = destroy,
    .infer = softmax_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
