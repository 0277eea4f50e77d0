/* scale: multiplies each channel by a trained number and optionally adds another. */
#include "../shared/scale.h"
#include "cudnn.h"
#include "kernels/kernels.h"

typedef struct scale {
    scale_layer head;
    scale_args args; /* without the pointers */
} scale;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return scale_layer_alloc(args, sizeof(scale), out);
}

/* The scratch memory holds partial sums over chunks of the batch. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    scale_args *args = &((scale *)layer)->args;
    const dlc_shape *in = &memory->in[0].shape;
    const dlc_layout *layout = layout_last(layer->net, in, memory->in[0].dtype);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    args->type = layout->dtype;
    args->channels = in->dims[1];
    args->rows = dlc_shape_count(in) / args->channels;
    if (!has_weight_gradient(layer)) {
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
    args.bias = s->head.has_bias ? run->param[1] : NULL;
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
    args.bias_diff = s->head.has_bias ? run->param_diff[1] : NULL;
    cudaError_t error = has_weight_gradient(layer)
                            ? scale_sums_run(&args, layer->net->stream)
                            : cudaSuccess;
    if (error == cudaSuccess && args.to)
        error = scale_run(&args, layer->net->stream);
    return check_cuda(error, layer->name, "do its backward pass");
}

const dlc_layer_ops scale_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = scale_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
