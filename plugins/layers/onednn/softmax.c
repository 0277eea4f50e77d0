/* softmax: turns scores into probabilities that add up to one along an axis. */
#include "../shared/join.h"
#include "op_layer.h"

typedef struct softmax {
    op_layer ops;
    int axis;
} softmax;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(softmax), out);
    if (status == DLC_OK)
        ((softmax *)*out)->axis = (int)host->get_int(args->settings, "axis");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return axis_infer(layer, ((const softmax *)layer)->axis, shapes);
}

static dnnl_status_t forward_pd(const dlc_layer *layer, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t dst,
                                dnnl_primitive_desc_t *pd) {
    (void)dst; /* the same */
    return pd_softmax_forward(env, prop, ((const softmax *)layer)->axis, src, pd);
}

static dnnl_status_t backward_pd(const dlc_layer *layer, const pd_env *env,
                                 md_t diff_src, md_t diff_dst,
                                 dnnl_primitive_desc_t *pd) {
    (void)diff_dst;
    return pd_softmax_backward(env, ((const softmax *)layer)->axis, diff_src, pd);
}

static const op_layer_kind kind = {forward_pd, backward_pd};

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in_place = 1;
    memory->reads_out = layer->phase == DLC_PHASE_TRAIN;
    return op_layer_prepare(layer, &kind, memory);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (!run->in_diff[0])
        return DLC_OK;
    return OP_RUN(&((softmax *)layer)->ops.backward, {DNNL_ARG_DST, run->out[0]},
                  {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

const dlc_layer_ops softmax_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = op_layer_destroy,
    .infer = infer,
    .prepare = prepare,
    .forward = op_layer_forward,
    .backward = backward,
    .describe = op_layer_describe,
};
