/* What the bodies of our kernels are made of. A body is the arithmetic of one thread: a
 * function of its place in the grid (host_device.h), so that tests run the very same
 * text on the host, with a loop for the grid.
 *
 * Element type and width (elements a thread takes at once) are arguments that kernels
 * give as constants: the compiler then sees through all of it. */
#ifndef DLCORE_CUDNN_BODY_H
#define DLCORE_CUDNN_BODY_H

#include <dlcore/tensor.h>

#include <math.h>
#include <string.h>

#include "../../shared/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/* ---- Sixteen-bit floats -------------------------------------------------------- */

BODY uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

BODY float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

BODY float from_bf16(uint16_t half) {
    return float_of((uint32_t)half << 16);
}

/* To the nearest, ties to even; what is no number stays none. */
BODY uint16_t to_bf16(float value) {
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
#endif
}

BODY float from_f16(uint16_t half) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(half));
#else
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity, or no number */
        return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    /* 2^112 brings the exponent from one bias to the other, subnormals included. */
    return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
#endif
}

BODY uint16_t to_f16(float value) {
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(value));
#else
    uint32_t bits = bits_of(value), rest = bits & 0x7fffffffu;
    uint32_t sign = bits >> 16 & 0x8000u;
    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x477ff000u) /* rounds to what it cannot hold */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* subnormal: in steps of 2^-24, which adding rounds to */
        float shifted = float_of(rest) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - bits_of(0.5f)));
    }
    return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13);
#endif
}

/* What a tensor of `type` makes of a number. */
BODY float as_stored(dlc_dtype type, float value) {
    if (type == DLC_BF16)
        return from_bf16(to_bf16(value));
    return type == DLC_F16 ? from_f16(to_f16(value)) : value;
}

/* ---- Elements ------------------------------------------------------------------- */

enum { WIDE_BYTES = 16, WIDEST = 8 };

/* A thread takes one element, or 16 bytes of them, which are then aligned. */
BODY int width_of(dlc_dtype type, int wide) {
    return !wide ? 1 : type == DLC_F32 ? 4 : 8;
}

typedef struct pack {
    float v[WIDEST]; /* the first `width` count */
} pack;

BODY float load_one(dlc_dtype type, const void *from, int64_t at) {
    if (type == DLC_F32)
        return ((const float *)from)[at];
    uint16_t half = ((const uint16_t *)from)[at];
    return type == DLC_BF16 ? from_bf16(half) : from_f16(half);
}

BODY void store_one(dlc_dtype type, void *to, int64_t at, float value) {
    if (type == DLC_F32)
        ((float *)to)[at] = value;
    else
        ((uint16_t *)to)[at] = type == DLC_BF16 ? to_bf16(value) : to_f16(value);
}

BODY size_t size_of(dlc_dtype type) {
    return type == DLC_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* 1, 2, 4, 8 or 16 bytes, aligned to as many, by one access. */
BODY void copy_aligned(size_t bytes, void *to, const void *from) {
#ifdef __CUDA_ARCH__
    if (bytes == sizeof(uint4))
        *(uint4 *)to = *(const uint4 *)from;
    else if (bytes == sizeof(uint2))
        *(uint2 *)to = *(const uint2 *)from;
    else if (bytes == sizeof(uint32_t))
        *(uint32_t *)to = *(const uint32_t *)from;
    else if (bytes == sizeof(uint16_t))
        *(uint16_t *)to = *(const uint16_t *)from;
    else
        *(uint8_t *)to = *(const uint8_t *)from;
#else
    memcpy(to, from, bytes);
#endif
}

/* Up to 16 bytes, as they lie. */
typedef union raw {
    float single[4];
    uint16_t half[8];
    uint8_t byte[16];
} __attribute__((aligned(16))) raw;

/* `width` elements, aligned to as many; `at` counts elements. */
BODY pack load(dlc_dtype type, int width, const void *from, int64_t at) {
    pack out;
    raw r;
    copy_aligned((size_t)width * size_of(type), &r,
                 (const char *)from + at * (int64_t)size_of(type));
    for (int k = 0; k < WIDEST; k++)
        out.v[k] = k >= width         ? 0
                   : type == DLC_F32  ? r.single[k & 3]
                   : type == DLC_BF16 ? from_bf16(r.half[k])
                                      : from_f16(r.half[k]);
    return out;
}

BODY void store(dlc_dtype type, int width, void *to, int64_t at, pack values) {
    raw r;
    for (int k = 0; k < width; k++)
        if (type == DLC_F32)
            r.single[k & 3] = values.v[k];
        else
            r.half[k] = type == DLC_BF16 ? to_bf16(values.v[k]) : to_f16(values.v[k]);
    copy_aligned((size_t)width * size_of(type),
                 (char *)to + at * (int64_t)size_of(type), &r);
}

/* `count` elements in a row, shared out: first threads that take 16 bytes each, then
 * some for what is left over, one element each. */
typedef struct stretch {
    int64_t items; /* threads */
    int64_t wide;  /* of them */
    int width;     /* of those */
} stretch;

BODY stretch stretch_of(dlc_dtype type, int64_t count) {
    stretch s;
    s.width = width_of(type, 1);
    s.wide = count / s.width;
    s.items = s.wide + count % s.width;
    return s;
}

/* Thread `item`'s first element, if it takes only one. */
BODY int64_t stretch_rest(stretch s, int64_t item) {
    return s.wide * s.width + (item - s.wide);
}

/* ---- Division ------------------------------------------------------------------- */

/* By a number that is known before the kernel runs, as a product; of what is below
 * 2^31. Granlund and Montgomery, "Division by invariant integers using multiplication",
 * PLDI 1994, figure 4.1. */
typedef struct divider {
    uint32_t by, factor, shift;
} divider;

BODY divider divider_of(int64_t by) {
    divider d = {(uint32_t)by, 0, 0};
    while ((1ull << d.shift) < d.by)
        d.shift++;
    d.factor = (uint32_t)(((1ull << 32) * ((1ull << d.shift) - d.by)) / d.by + 1);
    return d;
}

BODY uint32_t divided(uint32_t n, divider d) {
    uint32_t high = (uint32_t)((uint64_t)n * d.factor >> 32);
    return (high + n) >> d.shift;
}

/* What is left over, and *n the quotient. */
BODY uint32_t split(uint32_t *n, divider d) {
    uint32_t quotient = divided(*n, d), rest = *n - quotient * d.by;
    *n = quotient;
    return rest;
}

BODY int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

BODY int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
