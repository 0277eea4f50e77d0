/* The head of every layer, and checks of inputs. */
#include "layer.h"

#include <stdio.h>
#include <string.h>

dlc_status layer_alloc(const dlc_layer_args *args, size_t bytes, dlc_layer **out) {
    dlc_layer *layer = host->alloc(bytes);
    if (!layer)
        return DLC_ERR_NOMEM;
    layer->net = args->context;
    (void)snprintf(layer->name, sizeof layer->name, "%s", args->name);
    layer->phase = args->phase;
    layer->train_layer = args->train_layer;
    layer->plain_params = DLC_HAS(args, plain_params) && args->plain_params;
    layer->frozen = DLC_HAS(args, frozen) && args->frozen;
    layer->group = DLC_HAS(args, group) ? args->group : NULL;
    layer->seed = args->seed;
    layer->index = args->index;
    *out = layer;
    return DLC_OK;
}

void layer_free(dlc_layer *layer) {
    host->free(layer);
}

dlc_status need_inputs(const dlc_layer *layer, const dlc_layer_shapes *shapes,
                       int count) {
    if (shapes->inputs == count)
        return DLC_OK;
    return host->fail(DLC_ERR_CONFIG, "layer '%s' takes %d input%s, but has %d",
                      layer->name, count, count == 1 ? "" : "s", (int)shapes->inputs);
}

static int is_float(dlc_dtype dtype) {
    return dtype == DLC_F32 || dtype == DLC_BF16 || dtype == DLC_F16;
}

dlc_status need_floats(const dlc_layer *layer, const dlc_layer_shapes *shapes,
                       int min_rank, int max_rank) {
    for (int32_t i = 0; i < shapes->inputs; i++) {
        const dlc_tensor *in = &shapes->in[i];
        if (!is_float(in->dtype))
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s' reads float32, but its input %d is of another "
                "type; labels go into losses and accuracy only",
                layer->name, (int)i + 1);
        if (in->shape.rank >= min_rank && in->shape.rank <= max_rank)
            continue;
        if (min_rank == max_rank)
            return host->fail(DLC_ERR_CONFIG,
                              "layer '%s' wants %d dimensions, but its input %d is %s",
                              layer->name, min_rank, (int)i + 1,
                              shape_print(&in->shape).text);
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s' wants %d to %d dimensions, but its input %d is %s", layer->name,
            min_rank, max_rank, (int)i + 1, shape_print(&in->shape).text);
    }
    return DLC_OK;
}

dlc_status need_axis(const dlc_layer *layer, const char *input, int axis,
                     const dlc_shape *in) {
    if (axis < in->rank)
        return DLC_OK;
    return host->fail(DLC_ERR_CONFIG,
                      "layer '%s': axis = %d, but its %s %s has only the axes 0 .. %d",
                      layer->name, axis, input, shape_print(in).text,
                      (int)in->rank - 1);
}

dlc_status infer_one(const dlc_layer *layer, dlc_layer_shapes *shapes, int min_rank,
                     int max_rank) {
    dlc_status status = need_inputs(layer, shapes, 1);
    if (status == DLC_OK)
        status = need_floats(layer, shapes, min_rank, max_rank);
    if (status != DLC_OK)
        return status;
    shapes->out[0].shape = shapes->in[0].shape;
    shapes->out[0].dtype = shapes->in[0].dtype;
    return DLC_OK;
}

dlc_status infer_elementwise(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return infer_one(layer, shapes, 1, DLC_MAX_DIMS);
}

dlc_status infer_image(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return infer_one(layer, shapes, 4, 4);
}

dlc_dtype common_type(const dlc_tensor *tensor, int32_t count) {
    for (int32_t i = 1; i < count; i++)
        if (tensor[i].dtype != tensor[0].dtype)
            return DLC_F32;
    return tensor[0].dtype;
}

void order_dims(int rank, int last, int order[DLC_MAX_DIMS]) {
    int n = 0;
    order[n++] = 0;
    for (int d = last ? 2 : 1; d < rank; d++)
        order[n++] = d;
    if (last && rank > 1)
        order[n] = 1;
}

void describe_own(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
}

int option_is(const dlc_settings *settings, const char *option, const char *value) {
    return strcmp(host->get_string(settings, option), value) == 0;
}
