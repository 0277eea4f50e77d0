/* Options and parameters of scale. */
#include "scale.h"

dlc_status scale_layer_alloc(const dlc_layer_args *args, size_t bytes,
                             dlc_layer **layer) {
    dlc_status status = layer_alloc(args, bytes, layer);
    if (status != DLC_OK)
        return status;
    scale_layer *scale = (scale_layer *)*layer;
    scale->has_bias = host->get_bool(args->settings, "bias");
    scale->scale = param_read(args->settings, "scale");
    scale->bias = param_read(args->settings, "bias");
    return DLC_OK;
}

dlc_status scale_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    const scale_layer *scale = (const scale_layer *)layer;
    dlc_status status = infer_one(layer, shapes, 2, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    int64_t channels = shapes->in[0].shape.dims[1];
    shapes->params = 0;
    (void)param_add_channels(shapes, &scale->scale, channels);
    if (scale->has_bias)
        (void)param_add_channels(shapes, &scale->bias, channels);
    return DLC_OK;
}
