/* flatten: merges dimensions. In plain layout nothing has to be moved. */
#include <stdio.h>

#include "cudnn.h"
#include "kernels/kernels.h"

typedef struct flatten {
    dlc_layer head;
    int axis;
    size_t bytes;
} flatten;

const dlc_option flatten_options[] = {
    DLC_INT("axis", "1", 0, DLC_MAX_DIMS - 1,
            "first of the dimensions that are merged; all after it are merged too"),
    DLC_OPTIONS_END,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(flatten), out);
    if (status == DLC_OK)
        ((flatten *)*out)->axis = (int)host->get_int(args->settings, "axis");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    flatten *flat = (flatten *)layer;
    dlc_status status = need_inputs(layer, shapes, 1);
    if (status == DLC_OK)
        status = need_floats(layer, shapes, 1, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    if (flat->axis >= in->rank)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': axis = %d, but its input %s has only the axes "
                          "0 .. %d",
                          layer->name, flat->axis, shape_print(in).text,
                          (int)in->rank - 1);
    dlc_shape out = {.rank = (int32_t)flat->axis + 1};
    int64_t count = dlc_shape_count(in), outer = 1;
    for (int d = 0; d < flat->axis; d++)
        outer *= out.dims[d] = in->dims[d];
    out.dims[flat->axis] = count / outer;
    shapes->out[0].shape = out;
    shapes->out[0].dtype = shapes->in[0].dtype;
    return DLC_OK;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->in[0].bytes = memory->out[0].bytes = 0;
    ((flatten *)layer)->bytes = dlc_tensor_bytes(&memory->in[0]);
    memory->in_place = 1;
    return DLC_OK;
}

static dlc_status move(dlc_layer *layer, const void *from, void *to, const char *what) {
    if (!to || from == to)
        return DLC_OK;
    return check_cuda(
        copy_run(to, from, ((const flatten *)layer)->bytes, layer->net->stream),
        layer->name, what);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    return move(layer, run->in[0], run->out[0], "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    return move(layer, run->out_diff[0], run->in_diff[0], "do its backward pass");
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
}

const dlc_layer_ops flatten_ops = {
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
