/* Activations: element-wise functions of one input. One table of types, one
 * implementation by oneDNN, which decides whether backward reads the output or the
 * input. */
#include <string.h>

#include "op_layer.h"
#include "relu.h"

typedef struct activation {
    op_layer ops;
    dnnl_alg_kind_t forward_kind, backward_kind;
    int by_output; /* backward reads the output: may run in place */
    float alpha, beta;
} activation;

/* One type. `by_output` is the variant whose backward reads the output, 0 where oneDNN
 * has none. */
typedef struct activation_type {
    dnnl_alg_kind_t kind, by_output;
    const char *alpha, *beta; /* option names, NULL: alpha0, beta0 */
    float alpha0, beta0;
} activation_type;

static dlc_status create(const activation_type *type, const dlc_layer_args *args,
                         dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(activation), &layer);
    if (status != DLC_OK)
        return status;
    activation *act = (activation *)layer;
    const dlc_settings *settings = args->settings;
    act->alpha = type->alpha ? (float)host->get_float(settings, type->alpha)
                             : type->alpha0;
    act->beta = type->beta ? (float)host->get_float(settings, type->beta) : type->beta0;
    act->forward_kind = type->kind;
    act->by_output = type->by_output != 0;
    act->backward_kind = act->by_output ? type->by_output : type->kind;
    *out = layer;
    return DLC_OK;
}

/* The variants differ in backward only, but must have the same kind as the hint. */
static dnnl_status_t forward_pd(const dlc_layer *layer, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t dst,
                                dnnl_primitive_desc_t *pd) {
    const activation *act = (const activation *)layer;
    (void)dst; /* the same */
    return pd_eltwise_forward(env, prop,
                              layer->phase == DLC_PHASE_TRAIN ? act->backward_kind
                                                              : act->forward_kind,
                              act->alpha, act->beta, src, pd);
}

static dnnl_status_t backward_pd(const dlc_layer *layer, const pd_env *env,
                                 md_t diff_src, md_t diff_dst,
                                 dnnl_primitive_desc_t *pd) {
    const activation *act = (const activation *)layer;
    (void)diff_dst;
    return pd_eltwise_backward(env, act->backward_kind, act->alpha, act->beta, diff_src,
                               pd);
}

static const op_layer_kind kind = {forward_pd, backward_pd};

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    const activation *act = (const activation *)layer;
    memory->in_place = 1;
    if (layer->phase == DLC_PHASE_TRAIN) {
        memory->reads_in = !act->by_output;
        memory->reads_out = act->by_output;
    }
    return op_layer_prepare(layer, &kind, memory);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    activation *act = (activation *)layer;
    if (!run->in_diff[0])
        return DLC_OK;
    op_bind data = act->by_output ? (op_bind){DNNL_ARG_DST, run->out[0]}
                                  : (op_bind){DNNL_ARG_SRC, run->in[0]};
    return OP_RUN(&act->ops.backward, data, {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static dlc_status create_gelu(const dlc_layer_args *args, dlc_layer **layer) {
    const char *form = host->get_string(args->settings, "form");
    const activation_type type = {.kind = strcmp(form, "tanh") == 0
                                              ? dnnl_eltwise_gelu_tanh
                                              : dnnl_eltwise_gelu_erf};
    return create(&type, args, layer);
}

static dlc_status create_clip(const dlc_layer_args *args, dlc_layer **layer) {
    static const activation_type type = {
        .kind = dnnl_eltwise_clip_v2,
        .by_output = dnnl_eltwise_clip_v2_use_dst_for_bwd,
        .alpha = "min",
        .beta = "max"};
    dlc_status status = clip_check(args);
    return status == DLC_OK ? create(&type, args, layer) : status;
}

#define OPS(name_) \
    const dlc_layer_ops name_##_ops = { \
        .size = sizeof(dlc_layer_ops), \
        .family = &onednn_family, \
        .create = create_##name_, \
        .destroy = op_layer_destroy, \
        .infer = infer_elementwise, \
        .prepare = prepare, \
        .forward = op_layer_forward, \
        .backward = backward, \
        .describe = op_layer_describe, \
    }
#define ACTIVATION(name_, ...) \
    static dlc_status create_##name_(const dlc_layer_args *args, dlc_layer **layer) { \
        static const activation_type type = {__VA_ARGS__}; \
        return create(&type, args, layer); \
    } \
    OPS(name_)

/* clang-format off */
ACTIVATION(relu, .kind = dnnl_eltwise_relu, .alpha = "negative_slope",
           .by_output = dnnl_eltwise_relu_use_dst_for_bwd);
ACTIVATION(sigmoid, .kind = dnnl_eltwise_logistic,
           .by_output = dnnl_eltwise_logistic_use_dst_for_bwd);
ACTIVATION(tanh, .kind = dnnl_eltwise_tanh,
           .by_output = dnnl_eltwise_tanh_use_dst_for_bwd);
ACTIVATION(elu, .kind = dnnl_eltwise_elu, .alpha = "alpha",
           .by_output = dnnl_eltwise_elu_use_dst_for_bwd);
ACTIVATION(swish, .kind = dnnl_eltwise_swish, .alpha = "beta");
ACTIVATION(softplus, .kind = dnnl_eltwise_soft_relu, .alpha0 = 1);
ACTIVATION(mish, .kind = dnnl_eltwise_mish);
ACTIVATION(hardswish, .kind = dnnl_eltwise_hardswish, .alpha0 = 1.0f / 6, .beta0 = 0.5f);
ACTIVATION(abs, .kind = dnnl_eltwise_abs);
/* clang-format on */
OPS(gelu);
OPS(clip);
