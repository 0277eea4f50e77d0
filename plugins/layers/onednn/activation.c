/* Activations: element-wise functions of one input. One table of types, one
 * implementation by oneDNN, which decides whether backward reads the output or the
 * input. */
#include "relu.h"

#include <stdio.h>
#include <string.h>

typedef struct activation {
    dlc_layer head;
    dnnl_alg_kind_t forward_kind, backward_kind;
    int by_output; /* backward reads the output: may run in place */
    float alpha, beta;
    op forward, backward;
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

static void destroy(dlc_layer *layer) {
    if (!layer)
        return;
    op_clear(&((activation *)layer)->forward);
    op_clear(&((activation *)layer)->backward);
    layer_free(layer);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    activation *act = (activation *)layer;
    context *net = layer->net;
    const dlc_layout *layout = NULL;
    dlc_status status = same_layout(layer, memory, &layout);
    if (status != DLC_OK)
        return status;
    int train = layer->phase == DLC_PHASE_TRAIN;
    pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_primitive_desc_t pd = NULL;
    /* The variants differ in backward only, but must have the same kind as the hint. */
    dnnl_alg_kind_t kind = train ? act->backward_kind : act->forward_kind;
    dnnl_status_t st = pd_eltwise_forward(
        &env, train ? dnnl_forward_training : dnnl_forward_inference, kind, act->alpha,
        act->beta, layout->md, &pd);
    status = op_init(&act->forward, net, layer->name, "do its forward pass", st, pd);
    if (status != DLC_OK)
        return status;
    memory->scratch_bytes = act->forward.scratch_bytes;
    memory->in_place = 1;
    if (!train)
        return DLC_OK;
    env.hint = act->forward.pd;
    st = pd_eltwise_backward(&env, kind, act->alpha, act->beta, layout->md, &pd);
    status = op_init(&act->backward, net, layer->name, "do its backward pass", st, pd);
    if (status != DLC_OK)
        return status;
    if (act->backward.scratch_bytes > memory->scratch_bytes)
        memory->scratch_bytes = act->backward.scratch_bytes;
    memory->reads_in = !act->by_output;
    memory->reads_out = act->by_output;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    return OP_RUN(&((activation *)layer)->forward, {DNNL_ARG_SRC, run->in[0]},
                  {DNNL_ARG_DST, run->out[0]}, {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    activation *act = (activation *)layer;
    if (!run->in_diff[0])
        return DLC_OK;
    op_bind data = act->by_output ? (op_bind){DNNL_ARG_DST, run->out[0]}
                                  : (op_bind){DNNL_ARG_SRC, run->in[0]};
    return OP_RUN(&act->backward, data, {DNNL_ARG_DIFF_DST, run->out_diff[0]},
                  {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "%s", op_name(&((activation *)layer)->forward));
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
        .destroy = destroy, \
        .infer = infer_elementwise, \
        .prepare = prepare, \
        .forward = forward, \
        .backward = backward, \
        .describe = describe, \
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
