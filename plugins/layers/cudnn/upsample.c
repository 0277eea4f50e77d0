/* upsample: images enlarged by a whole factor, with our own kernels; as PyTorch's
 * Upsample with align_corners = False. */
#include "../shared/upsample.h"

#include "kernels/kernels.h"
#include "tensors.h"

typedef struct upsample {
    dlc_layer head;
    upsample_settings how;
    upsample_args args; /* without the pointers */
} upsample;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(upsample), out);
    if (status == DLC_OK)
        ((upsample *)*out)->how = upsample_read(args->settings);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return upsample_infer(layer, &((upsample *)layer)->how, shapes);
}

static void fill_args(upsample *up, const dlc_shape *in, dlc_dtype dtype) {
    upsample_args *args = &up->args;
    args->type = dtype;
    args->bilinear = up->how.bilinear;
    args->factor = (int32_t)up->how.factor;
    args->images = in->dims[0];
    args->channels = in->dims[1];
    for (int i = 0; i < 2; i++)
        args->in[i] = (int32_t)in->dims[2 + i];
    upsample_ready(args);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    dlc_dtype dtype = memory->in[0].dtype;
    dlc_status status = need_countable(layer, "image",
                                       dlc_shape_count(out) / out->dims[0]);
    if (status != DLC_OK)
        return status;
    const dlc_layout *from = layout_last(layer->net, in, dtype);
    const dlc_layout *to = layout_last(layer->net, out, dtype);
    if (!from || !to)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], from);
    layout_give(&memory->out[0], to);
    fill_args((upsample *)layer, in, dtype);
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    upsample_args args = ((const upsample *)layer)->args;
    args.from = run->in[0];
    args.to = run->out[0];
    return check_cuda(upsample_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    upsample_args args = ((const upsample *)layer)->args;
    if (!run->in_diff[0])
        return DLC_OK;
    args.from = run->out_diff[0];
    args.to = run->in_diff[0];
    return check_cuda(upsample_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

const dlc_layer_ops upsample_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
