/* Conversions of single bfloat16 numbers: the upper half of a float32. */
#ifndef ONEDNN_BFLOAT16_H
#define ONEDNN_BFLOAT16_H

#include <stdint.h>
#include <string.h>

static inline float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#endif
