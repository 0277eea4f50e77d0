/* bfloat16: the upper half of a float32. Used by convert.c and kernels.c. */
#ifndef BF16_H
#define BF16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t bf16_of(float value) {
    uint32_t bits = bits_of(value);
    uint32_t nan = (bits >> 16) |
                   0x40; /* a quiet NaN, so that truncation keeps it a NaN */
    uint32_t even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : even);
}

static inline float float_of_bf16(uint16_t half) {
    return float_of((uint32_t)half << 16);
}

#endif
