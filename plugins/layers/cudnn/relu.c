/* Fusing activations: which layers can be fused, and their bounds. */
#include "relu.h"

#include <string.h>

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
