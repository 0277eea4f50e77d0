/* pooling: the maximum or the average of each window, channel by channel.
 *
 * The rules are Caffe's: the number of windows is rounded up, and the average divides
 * by the area of the window inside the padded image, which is smaller for windows that
 * overhang the padding. */

#include "../shared/pooling.h"
#include "kernels/kernels.h"
#include "tensors.h"

typedef struct pooling {
    dlc_layer head;
    pooling_settings how;
    pooling_args args; /* without the pointers */
} pooling;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(pooling), &layer);
    if (status != DLC_OK)
        return status;
    pooling *pool = (pooling *)layer;
    status = pooling_read(layer->name, args->settings, &pool->how);
    pool->args.average = pool->how.average;
    pool->args.inside = pool->how.inside;
    if (status == DLC_OK)
        *out = layer;
    else
        layer_free(layer);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return pooling_infer(layer, &((pooling *)layer)->how, shapes);
}

static void fill_args(pooling *pool, const dlc_shape *in, const dlc_shape *out) {
    pooling_args *args = &pool->args;
    args->images = in->dims[0];
    args->channels = in->dims[1];
    for (int i = 0; i < 2; i++) {
        args->in[i] = (int32_t)in->dims[2 + i];
        args->out[i] = (int32_t)out->dims[2 + i];
        args->kernel[i] = (int32_t)pool->how.window.kernel[i];
        args->stride[i] = (int32_t)pool->how.window.stride[i];
        args->pad[i] = (int32_t)pool->how.window.pad_begin[i];
    }
    pooling_ready(args);
}

/* The workspace holds the position of each maximum in its window. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    pooling *pool = (pooling *)layer;
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    dlc_dtype dtype = memory->in[0].dtype;
    dlc_status status = need_countable(layer, "image",
                                       dlc_shape_count(in) / in->dims[0]);
    if (status == DLC_OK)
        status = need_countable(layer, "image", dlc_shape_count(out) / in->dims[0]);
    if (status == DLC_OK) /* windows also cover padding */
        status = need_countable(
            layer, "window", pool->how.window.kernel[0] * pool->how.window.kernel[1]);
    if (status != DLC_OK)
        return status;
    const dlc_layout *from = layout_last(layer->net, in, dtype);
    const dlc_layout *to = layout_last(layer->net, out, dtype);
    if (!from || !to)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], from);
    layout_give(&memory->out[0], to);
    pool->args.type = dtype;
    fill_args(pool, in, out);
    if (layer->phase == DLC_PHASE_TRAIN && !pool->args.average)
        memory->workspace_bytes = (size_t)to->count *
                                  (pool->args.wide_place ? sizeof(uint32_t) : 1);
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    pooling_args args = ((const pooling *)layer)->args;
    args.from = run->in[0];
    args.to = run->out[0];
    if (layer->phase == DLC_PHASE_TRAIN && !args.average)
        args.place = run->workspace;
    return check_cuda(pooling_forward_run(&args, layer->net->stream), layer->name,
                      "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    pooling_args args = ((const pooling *)layer)->args;
    if (!run->in_diff[0])
        return DLC_OK;
    args.from = run->out_diff[0];
    args.to = run->in_diff[0];
    args.place = args.average ? NULL : run->workspace;
    return check_cuda(pooling_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

const dlc_layer_ops pooling_ops = {
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
