/* Fuses a relu or clip into the layer before it. */
#include "relu.h"

#include "types.h"

dlc_status relu_fuse(fused_relu *relu, const dlc_feature *next,
                     const dlc_settings *settings) {
    if (relu->on || next->kind != DLC_KIND_LAYER || next->ops != &relu_ops)
        return DLC_ERR_UNSUPPORTED;
    relu->on = 1;
    relu->bounds = (bounds){
        .high = INFINITY, .slope = (float)host->get_float(settings, "negative_slope")};
    return DLC_OK;
}

dlc_status relu_or_clip_fuse(fused_relu *relu, const dlc_feature *next,
                             const dlc_settings *settings) {
    if (relu->on || next->kind != DLC_KIND_LAYER || next->ops != &clip_ops)
        return relu_fuse(relu, next, settings);
    double low = host->get_float(settings, "min"),
           high = host->get_float(settings, "max");
    if (low > 0 || high < 0)
        return DLC_ERR_UNSUPPORTED;
    relu->on = 1;
    relu->bounds = (bounds){.low = (float)low, .high = (float)high};
    return DLC_OK;
}

const char *relu_text(const fused_relu *relu) {
    if (!relu->on)
        return "";
    return relu->bounds.high < INFINITY ? " +clip" : " +relu";
}

bounds relu_bounds(const fused_relu *relu) {
    return relu->on ? relu->bounds : BOUNDS_NONE;
}

dlc_status clip_check(const dlc_layer_args *args) {
    double low = host->get_float(args->settings, "min");
    double high = host->get_float(args->settings, "max");
    if (low >= high)
        return host->fail(DLC_ERR_CONFIG, "layer '%s': min = %g must be below max = %g",
                          args->name, low, high);
    return DLC_OK;
}
