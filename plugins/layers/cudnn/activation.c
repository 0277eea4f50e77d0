/* Activations: elementwise functions, all in one implementation with a table of types.
 * Whether backward reads the input or the output depends on the kernel. */
#include <string.h>

#include "kernels/kernels.h"
#include "relu.h"

typedef struct activation {
    dlc_layer head;
    activation_args args; /* without the pointers; bounds not yet rounded */
} activation;

/* Describes one layer type. */
typedef struct activation_type {
    activation_kind kind;
    const char *alpha;      /* name of its option; NULL: none */
    const char *slope;      /* option with the slope below zero; bounded at zero */
    const char *low, *high; /* options with the bounds */
} activation_type;

static bounds bounds_of(const activation_type *type, const dlc_settings *settings) {
    if (type->slope)
        return (bounds){.high = INFINITY,
                        .slope = (float)host->get_float(settings, type->slope)};
    if (type->low)
        return (bounds){.low = (float)host->get_float(settings, type->low),
                        .high = (float)host->get_float(settings, type->high)};
    return BOUNDS_NONE;
}

static dlc_status create(const activation_type *type, const dlc_layer_args *args,
                         dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(activation), out);
    if (status != DLC_OK)
        return status;
    activation *act = (activation *)*out;
    act->args.kind = type->kind;
    act->args.limit = bounds_of(type, args->settings);
    if (type->alpha)
        act->args.alpha = (float)host->get_float(args->settings, type->alpha);
    return DLC_OK;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    activation_args *args = &((activation *)layer)->args;
    const dlc_layout *layout = NULL;
    dlc_status status = same_layout(layer, memory, &layout);
    if (status != DLC_OK)
        return status;
    args->type = layout->dtype;
    args->count = layout->count;
    /* Backward tells from the output where it was bounded. */
    args->limit.low = as_stored(args->type, args->limit.low);
    args->limit.high = as_stored(args->type, args->limit.high);
    memory->in_place = 1;
    if (layer->phase != DLC_PHASE_TRAIN)
        return DLC_OK;
    memory->reads_out = activation_by_output(args->kind);
    memory->reads_in = !memory->reads_out;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    activation_args args = ((const activation *)layer)->args;
    args.in = run->in[0];
    args.out = run->out[0];
    return check_cuda(activation_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    activation_args args = ((const activation *)layer)->args;
    if (!run->in_diff[0])
        return DLC_OK;
    args.read = activation_by_output(args.kind) ? run->out[0] : run->in[0];
    args.out_diff = run->out_diff[0];
    args.in_diff = run->in_diff[0];
    return check_cuda(activation_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

static dlc_status create_gelu(const dlc_layer_args *args, dlc_layer **layer) {
    const char *form = host->get_string(args->settings, "form");
    const activation_type type = {.kind = strcmp(form, "tanh") == 0 ? ACT_GELU_TANH
                                                                    : ACT_GELU_ERF};
    return create(&type, args, layer);
}

static dlc_status create_clip(const dlc_layer_args *args, dlc_layer **layer) {
    static const activation_type type = {
        .kind = ACT_BOUNDS, .low = "min", .high = "max"};
    dlc_status status = clip_check(args);
    return status == DLC_OK ? create(&type, args, layer) : status;
}

#define OPS(name_) \
    const dlc_layer_ops name_##_ops = { \
        .size = sizeof(dlc_layer_ops), \
        .family = &cudnn_family, \
        .create = create_##name_, \
        .destroy = layer_free, \
        .infer = infer_elementwise, \
        .prepare = prepare, \
        .forward = forward, \
        .backward = backward, \
        .describe = describe_own, \
    }
#define ACTIVATION(name_, ...) \
    static dlc_status create_##name_(const dlc_layer_args *args, dlc_layer **layer) { \
        static const activation_type type = {__VA_ARGS__}; \
        return create(&type, args, layer); \
    } \
    OPS(name_)

ACTIVATION(relu, .kind = ACT_BOUNDS, .slope = "negative_slope");
ACTIVATION(sigmoid, .kind = ACT_SIGMOID);
ACTIVATION(tanh, .kind = ACT_TANH);
ACTIVATION(elu, .kind = ACT_ELU, .alpha = "alpha");
ACTIVATION(swish, .kind = ACT_SWISH, .alpha = "beta");
ACTIVATION(softplus, .kind = ACT_SOFTPLUS);
ACTIVATION(mish, .kind = ACT_MISH);
ACTIVATION(hardswish, .kind = ACT_HARDSWISH);
ACTIVATION(abs, .kind = ACT_ABS);
OPS(gelu);
OPS(clip);
