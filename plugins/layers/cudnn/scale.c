/* scale: multiplies each channel by a trained number and optionally adds another. */
#include <stdio.h>

#include "cudnn.h"
#include "kernels/kernels.h"

typedef struct scale {
    dlc_layer head;
    int has_bias;
    const char *filler[2];
    double rate[2], decay[2];
    scale_args args; /* without the pointers */
} scale;

const dlc_option scale_options[] = {
    DLC_BOOL("bias", "no", "add a trained constant to each channel"),
    DLC_FILLER("scale_filler", "constant(1)", "how the factors start"),
    DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"),
    DLC_FLOAT("scale_lr_mult", "1", 0, 1e6,
              "the factors' learning rate is the solver's times this"),
    DLC_FLOAT("scale_decay_mult", "1", 0, 1e6,
              "the factors' weight decay is the solver's times this"),
    DLC_FLOAT("bias_lr_mult", "1", 0, 1e6,
              "the bias' learning rate is the solver's times this"),
    DLC_FLOAT("bias_decay_mult", "1", 0, 1e6,
              "the bias' weight decay is the solver's times this"),
    DLC_OPTIONS_END,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    dlc_status status = layer_alloc(args, sizeof(scale), out);
    if (status != DLC_OK)
        return status;
    scale *s = (scale *)*out;
    s->has_bias = host->get_bool(settings, "bias");
    s->filler[0] = host->get_string(settings, "scale_filler");
    s->filler[1] = host->get_string(settings, "bias_filler");
    s->rate[0] = host->get_float(settings, "scale_lr_mult");
    s->rate[1] = host->get_float(settings, "bias_lr_mult");
    s->decay[0] = host->get_float(settings, "scale_decay_mult");
    s->decay[1] = host->get_float(settings, "bias_decay_mult");
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    static const char *const name[2] = {"scale", "bias"};
    scale *s = (scale *)layer;
    dlc_status status = need_inputs(layer, shapes, 1);
    if (status == DLC_OK)
        status = need_floats(layer, shapes, 2, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    s->args.channels = in->dims[1];
    s->args.rows = dlc_shape_count(in) / s->args.channels;
    shapes->params = s->has_bias ? 2 : 1;
    for (int i = 0; i < shapes->params; i++) {
        dlc_param *param = &shapes->param[i];
        param->name = name[i];
        param->shape = (dlc_shape){.rank = 1, .dims = {s->args.channels}};
        param->fan_in = param->fan_out = 1;
        param->filler = s->filler[i];
        param->lr_mult = s->rate[i];
        param->decay_mult = s->decay[i];
    }
    same_shape(shapes);
    return DLC_OK;
}

/* The scratch memory holds partial sums over chunks of the batch. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    scale_args *args = &((scale *)layer)->args;
    const dlc_layout *layout = layout_last(layer->net, &memory->in[0].shape,
                                           memory->in[0].dtype);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    args->type = layout->dtype;
    if (layer->phase != DLC_PHASE_TRAIN) {
        memory->in_place = 1;
        return DLC_OK;
    }
    memory->reads_in = 1;
    memory->scratch_bytes = (size_t)(scale_chunks(args->rows) * args->channels) *
                            sizeof(pair);
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const scale *s = (const scale *)layer;
    scale_args args = s->args;
    args.from = run->in[0];
    args.to = run->out[0];
    args.factor = run->param[0];
    args.bias = s->has_bias ? run->param[1] : NULL;
    return check_cuda(scale_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const scale *s = (const scale *)layer;
    scale_args args = s->args;
    args.from = run->out_diff[0];
    args.to = run->in_diff[0];
    args.factor = run->param[0];
    args.in = run->in[0];
    args.partial = run->scratch;
    args.factor_diff = run->param_diff[0];
    args.bias_diff = s->has_bias ? run->param_diff[1] : NULL;
    cudaError_t error = scale_sums_run(&args, layer->net->stream);
    if (error == cudaSuccess && args.to)
        error = scale_run(&args, layer->net->stream);
    return check_cuda(error, layer->name, "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
}

const dlc_layer_ops scale_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
