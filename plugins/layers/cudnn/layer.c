/* What all layer types have in common: allocation, and checks of inputs. */
#include "cudnn.h"

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

dlc_status need_floats(const dlc_layer *layer, const dlc_layer_shapes *shapes,
                       int min_rank, int max_rank) {
    for (int32_t i = 0; i < shapes->inputs; i++) {
        const dlc_tensor *in = &shapes->in[i];
        if (in->dtype != DLC_F32 && in->dtype != DLC_BF16 && in->dtype != DLC_F16)
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s' reads float32, but its input %d is of another "
                "type; only losses and accuracy read labels",
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

void same_shape(dlc_layer_shapes *shapes) {
    shapes->out[0].shape = shapes->in[0].shape;
    shapes->out[0].dtype = shapes->in[0].dtype;
}

dlc_status same_layout(dlc_layer *layer, dlc_layer_memory *memory,
                       const dlc_layout **out) {
    const dlc_layout *layout = layout_of(layer->net, &memory->in[0]);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    *out = layout;
    return DLC_OK;
}
