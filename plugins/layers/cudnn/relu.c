/* Fusing activations: which layers can be fused, and their bounds. */
#include "relu.h"

#include <string.h>

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

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float value_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to the nearest number of a 16-bit type. */
static float rounded(float value, dlc_dtype dtype) {
    if (dtype == DLC_BF16 && isfinite(value)) {
        uint32_t bits = bits_of(value);
        return value_of((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
    }
    if (dtype == DLC_F16 && isfinite(value)) {
        const float largest = 65504, kept = 11, least = -14;
        int exponent;
        (void)frexpf(value, &exponent);
        float step = ldexpf(1, (int)fmaxf((float)exponent, least + 1) - (int)kept);
        float near = rintf(value / step) * step;
        return fabsf(near) > largest ? copysignf(INFINITY, value) : near;
    }
    return value;
}

bounds relu_stored(const fused_relu *relu, dlc_dtype dtype) {
    bounds limit = relu_bounds(relu);
    limit.low = rounded(limit.low, dtype);
    limit.high = rounded(limit.high, dtype);
    return limit;
}
