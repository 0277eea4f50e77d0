/* Options and shapes of pooling. */
#include "pooling.h"

static dlc_status check_pad(const char *layer, const sliding_window *window) {
    for (int i = 0; i < 2; i++)
        if (window->pad_begin[i] >= window->kernel[i])
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': pad %lld must be smaller than the window's %lld, "
                "or windows would hold padding alone",
                layer, (long long)window->pad_begin[i], (long long)window->kernel[i]);
    return DLC_OK;
}

dlc_status pooling_read(const char *layer, const dlc_settings *settings,
                        pooling_settings *p) {
    p->global = host->get_bool(settings, "global");
    p->average = option_is(settings, "method", "average");
    p->ceil = option_is(settings, "round", "ceil");
    p->inside = option_is(settings, "average_over", "image");
    dlc_status status = window_read(layer, settings, p->global, &p->window);
    return status == DLC_OK && !p->global ? check_pad(layer, &p->window) : status;
}

dlc_status pooling_infer(const dlc_layer *layer, pooling_settings *p,
                         dlc_layer_shapes *shapes) {
    dlc_status status = infer_one(layer, shapes, 4, 4);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    if (p->global)
        window_global(in, &p->window);
    return window_slide(layer->name, in, p->ceil, &p->window,
                        &shapes->out[0].shape.dims[2]);
}
