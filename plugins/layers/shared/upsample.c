/* Options and shapes of upsample. */
#include "upsample.h"

upsample_settings upsample_read(const dlc_settings *settings) {
    return (upsample_settings){.factor = host->get_int(settings, "factor"),
                               .bilinear = option_is(settings, "method", "bilinear")};
}

dlc_status upsample_infer(const dlc_layer *layer, const upsample_settings *u,
                          dlc_layer_shapes *shapes) {
    dlc_status status = infer_one(layer, shapes, 4, 4);
    for (int i = 2; status == DLC_OK && i < 4; i++)
        shapes->out[0].shape.dims[i] = times(shapes->in[0].shape.dims[i], u->factor);
    return status;
}
