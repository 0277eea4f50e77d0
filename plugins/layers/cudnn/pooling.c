/* pooling: the maximum or the average of each window, channel by channel.
 *
 * The rules are Caffe's: the number of windows is rounded up, and the average divides
 * by the area of the window inside the padded image, which is smaller for windows that
 * overhang the padding. */
#include <stdio.h>
#include <string.h>

#include "../shared/window.h"
#include "kernels/kernels.h"
#include "tensors.h"

typedef struct pooling {
    dlc_layer head;
    sliding_window window;
    int global, ceil;
    pooling_args args; /* without the pointers */
} pooling;

const dlc_option pooling_options[] = {
    DLC_CHOICE("method", "max", "max|average", "what is computed of a window"),
    WINDOW_OPTIONS,
    DLC_BOOL("global", "no", "one window, as large as the image"),
    DLC_CHOICE(
        "round", "ceil", "ceil|floor",
        "ceil: the last windows may overhang the image; floor: they are left out"),
    DLC_CHOICE("average_over", "padded", "padded|image",
               "an average counts the padding as zeros, or the image alone"),
    DLC_OPTIONS_END,
};

static int is_text(const dlc_settings *settings, const char *name, const char *text) {
    return strcmp(host->get_string(settings, name), text) == 0;
}

static dlc_status check_pad(const dlc_layer *layer, const sliding_window *w) {
    for (int i = 0; i < 2; i++)
        if (w->pad_begin[i] >= w->kernel[i])
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': pad %lld must be smaller than the window's %lld, "
                "or windows would hold padding alone",
                layer->name, (long long)w->pad_begin[i], (long long)w->kernel[i]);
    return DLC_OK;
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(pooling), &layer);
    if (status != DLC_OK)
        return status;
    pooling *pool = (pooling *)layer;
    pool->global = host->get_bool(settings, "global");
    pool->ceil = is_text(settings, "round", "ceil");
    pool->args.average = is_text(settings, "method", "average");
    pool->args.inside = is_text(settings, "average_over", "image");
    status = window_read(layer->name, settings, pool->global, &pool->window);
    if (status == DLC_OK && !pool->global)
        status = check_pad(layer, &pool->window);
    if (status != DLC_OK) {
        layer_free(layer);
        return status;
    }
    *out = layer;
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    pooling *pool = (pooling *)layer;
    int64_t size[2];
    dlc_status status = need_inputs(layer, shapes, 1);
    if (status == DLC_OK)
        status = need_floats(layer, shapes, 4, 4);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    if (pool->global)
        window_global(in, &pool->window);
    if ((status = window_slide(layer->name, in, pool->ceil, &pool->window, size)) !=
        DLC_OK)
        return status;
    shapes->out[0].shape = (dlc_shape){
        .rank = 4, .dims = {in->dims[0], in->dims[1], size[0], size[1]}};
    shapes->out[0].dtype = shapes->in[0].dtype;
    return DLC_OK;
}

static void fill_args(pooling *pool, const dlc_shape *in, const dlc_shape *out) {
    pooling_args *args = &pool->args;
    args->images = in->dims[0];
    args->channels = in->dims[1];
    for (int i = 0; i < 2; i++) {
        args->in[i] = (int32_t)in->dims[2 + i];
        args->out[i] = (int32_t)out->dims[2 + i];
        args->kernel[i] = (int32_t)pool->window.kernel[i];
        args->stride[i] = (int32_t)pool->window.stride[i];
        args->pad[i] = (int32_t)pool->window.pad_begin[i];
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
        status = need_countable(layer, "window",
                                pool->window.kernel[0] * pool->window.kernel[1]);
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

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
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
    .describe = describe,
};
