/* Building blocks of the kernel bodies. A body is the arithmetic of one thread, as a
 * function of its position in the grid (host_device.h), so that tests can run the same
 * source on the host in plain loops.
 *
 * Kernels pass element type and width (elements that a thread handles at once) as
 * constants, so that the compiler resolves them. */
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

/* Rounds to nearest, ties to even; NaN stays NaN. */
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
    if (rest >= 0x7c00u) /* infinity or NaN */
        return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    /* 2^112 converts the exponent from one bias to the other, subnormals included. */
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
    if (rest >= 0x477ff000u) /* rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* subnormal: adding 0.5 rounds to steps of 2^-24 */
        float shifted = float_of(rest) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - bits_of(0.5f)));
    }
    return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13);
#endif
}

/* The value after it was stored in a tensor of `type`. */
BODY float as_stored(dlc_dtype type, float value) {
    if (type == DLC_BF16)
        return from_bf16(to_bf16(value));
    return type == DLC_F16 ? from_f16(to_f16(value)) : value;
}

/* ---- Elements ------------------------------------------------------------------- */

enum { WIDE_BYTES = 16, WIDEST = 8 };

/* The elements that a thread handles: one, or 16 aligned bytes of them. */
BODY int width_of(dlc_dtype type, int wide) {
    return !wide ? 1 : type == DLC_F32 ? 4 : 8;
}

typedef struct pack {
    float v[WIDEST]; /* the first `width` are used */
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

/* Copies 1, 2, 4, 8 or 16 bytes, aligned to their number, by one access. */
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

/* Up to 16 bytes as they are in memory. */
typedef union raw {
    float single[4];
    uint16_t half[8];
    uint8_t byte[16];
} __attribute__((aligned(16))) raw;

/* `width` elements, aligned to their number; `at` counts elements. */
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

/* How `count` contiguous elements are divided among threads: the first take 16 bytes
 * each, the last take the remaining elements, one each. */
typedef struct vector_range {
    int64_t items; /* number of threads */
    int64_t wide;  /* threads that take 16 bytes */
    int width;     /* elements in 16 bytes */
} vector_range;

BODY vector_range vector_range_of(dlc_dtype type, int64_t count) {
    vector_range s;
    s.width = width_of(type, 1);
    s.wide = count / s.width;
    s.items = s.wide + count % s.width;
    return s;
}

/* The element of thread `item`, which is one of those that take a single one. */
BODY int64_t vector_range_rest(vector_range s, int64_t item) {
    return s.wide * s.width + (item - s.wide);
}

/* ---- Division ------------------------------------------------------------------- */

/* Division of numbers below 2^31 by a number that is known before the kernel runs, as a
 * multiplication. Granlund and Montgomery, "Division by invariant integers using
 * multiplication", PLDI 1994, figure 4.1. */
typedef struct fast_divisor {
    uint32_t by, factor, shift;
} fast_divisor;

BODY fast_divisor fast_divisor_of(int64_t by) {
    fast_divisor d = {(uint32_t)by, 0, 0};
    while ((1ull << d.shift) < d.by)
        d.shift++;
    d.factor = (uint32_t)(((1ull << 32) * ((1ull << d.shift) - d.by)) / d.by + 1);
    return d;
}

BODY uint32_t fast_divide(uint32_t n, fast_divisor d) {
    uint32_t high = (uint32_t)((uint64_t)n * d.factor >> 32);
    return (high + n) >> d.shift;
}

/* Divides *n and returns the remainder. */
BODY uint32_t fast_divmod(uint32_t *n, fast_divisor d) {
    uint32_t quotient = fast_divide(*n, d), rest = *n - quotient * d.by;
    *n = quotient;
    return rest;
}

BODY int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

BODY int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
