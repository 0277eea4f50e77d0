/* lrn: local response normalization, x / (k + alpha / n * sum x^2)^beta. The sum is
 * over n neighbours: channels, or positions in the image. As defined by Caffe. */
#include <string.h>

#include "kernels/kernels.h"
#include "tensors.h"

typedef struct lrn {
    dlc_layer head;
    lrn_args args; /* without the pointers */
} lrn;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    int64_t size = host->get_int(settings, "local_size");
    if (size % 2 == 0)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': local_size = %lld must be odd, so that its middle "
            "is the element itself",
            args->name, (long long)size);
    dlc_status status = layer_alloc(args, sizeof(lrn), out);
    if (status != DLC_OK)
        return status;
    lrn_args *l = &((lrn *)*out)->args;
    l->across = strcmp(host->get_string(settings, "norm_region"), "across_channels") ==
                0;
    l->half = (int32_t)(size / 2);
    double volume = l->across ? (double)size : (double)(size * size);
    l->alpha = (float)(host->get_float(settings, "alpha") / volume);
    l->beta = (float)host->get_float(settings, "beta");
    l->k = (float)host->get_float(settings, "k");
    return DLC_OK;
}

/* The workspace holds 1 / base for each element. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    lrn_args *l = &((lrn *)layer)->args;
    const dlc_shape *in = &memory->in[0].shape;
    dlc_status status = need_countable(layer, "image",
                                       dlc_shape_count(in) / in->dims[0]);
    if (status != DLC_OK)
        return status;
    const dlc_layout *layout = layout_last(layer->net, in, memory->in[0].dtype);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    l->type = layout->dtype;
    l->images = in->dims[0];
    l->size[0] = (int32_t)in->dims[2];
    l->size[1] = (int32_t)in->dims[3];
    l->size[2] = (int32_t)in->dims[1];
    lrn_ready(l);
    if (layer->phase != DLC_PHASE_TRAIN)
        return DLC_OK;
    memory->workspace_bytes = (size_t)layout->count * sizeof(float);
    memory->reads_in = memory->reads_out = 1;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    lrn_args args = ((const lrn *)layer)->args;
    args.in = run->in[0];
    args.out = run->out[0];
    if (layer->phase == DLC_PHASE_TRAIN)
        args.inverse = run->workspace;
    return check_cuda(lrn_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    lrn_args args = ((const lrn *)layer)->args;
    if (!run->in_diff[0])
        return DLC_OK;
    args.in = run->in[0];
    args.out = run->out[0];
    args.inverse = run->workspace;
    args.out_diff = run->out_diff[0];
    args.in_diff = run->in_diff[0];
    return check_cuda(lrn_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

const dlc_layer_ops lrn_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer_image,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
