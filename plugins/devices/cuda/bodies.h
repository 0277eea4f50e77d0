/* The arithmetic of the kernels, element by element: C that nvcc compiles for the GPU
 * and a test compiles for the CPU, where it is compared with the cpu device.
 *
 * Nothing may be contracted into FMA (nvcc -fmad=false, gcc -ffp-contract=off): then
 * results are bitwise identical to the cpu device's, except for the payload of NaNs.
 */
#ifndef BODIES_H
#define BODIES_H

#include <math.h>
#include <string.h>

#include <dlcore/device.h>

#ifdef __CUDACC__
#define BODY static __host__ __device__ inline
#else
#define BODY static inline
#endif
#ifdef __CUDA_ARCH__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

BODY uint32_t body_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

BODY float body_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- 16-bit floats: round to nearest even, NaN stays NaN ------------------------ */

BODY uint16_t body_bf16_of(float value) {
    uint32_t bits = body_bits(value);
    uint32_t nan = (bits >> 16) |
                   0x40; /* a quiet NaN, so that truncation keeps it a NaN */
    uint32_t even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : even);
}

BODY float body_of_bf16(uint16_t half) {
    return body_float((uint32_t)half << 16);
}

/* The GPU has instructions for fp16; integer arithmetic would take longer than the
 * memory access. */
BODY uint16_t body_f16_of(float value) {
#ifdef __CUDA_ARCH__
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    uint32_t bits = body_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    uint32_t nan = 0x7e00 | ((size >> 13) & 0x3ff);
    /* Normal: exponent 127 becomes 15; values too large become infinity. */
    uint32_t even = (size + 0xfff + ((size >> 13) & 1) - 0x38000000) >> 13;
    uint32_t normal = even < 0x7c00 ? even : 0x7c00;
    /* Below 2^-14: adding 0.5 lets the adder round to multiples of 2^-24. */
    uint32_t small = body_bits(body_float(size) + 0.5f) - 0x3f000000;
    uint32_t finite = size < 0x38800000 ? small : normal;
    return (uint16_t)(sign | (size > 0x7f800000 ? nan : finite));
#endif
}

BODY float body_of_f16(uint16_t half) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t size = (uint32_t)(half & 0x7fff) << 13, exponent = half & 0x7c00;
    uint32_t normal = size + 0x38000000;
    uint32_t infinite = size + 0x70000000; /* infinity and NaN */
    uint32_t small = body_bits(body_float(size + 0x38800000) - 0x1p-14f);
    uint32_t finite = exponent == 0 ? small : normal;
    return body_float(sign | (exponent == 0x7c00 ? infinite : finite));
#endif
}

/* ---- Integers: round to nearest even and saturate, NaN becomes 0 ---------------- */

BODY uint8_t body_u8_of(float value) {
    float low = value > 0.0f ? value : 0.0f; /* NaN, too */
    float in = low < 255.0f ? low : 255.0f;
    return (uint8_t)body_bits(in + 0x1p23f); /* the addition rounds to integers */
}

BODY int32_t body_i32_of(float value) {
    if (value != value)
        return 0;
    if (value >= 0x1p31f)
        return INT32_MAX;
    return value <= -0x1p31f ? INT32_MIN : (int32_t)rintf(value);
}

BODY int64_t body_i64_of(float value) {
    if (value != value)
        return 0;
    if (value >= 0x1p63f)
        return INT64_MAX;
    return value <= -0x1p63f ? INT64_MIN : (int64_t)rintf(value);
}

BODY float body_of_u8(uint8_t value) {
    return (float)value;
}

BODY float body_of_i32(int32_t value) {
    return (float)value;
}

BODY float body_of_i64(int64_t value) {
    return (float)value;
}

BODY float body_of_f64(double value) {
    return (float)value;
}

BODY double body_f64_of(float value) {
    return (double)value;
}

/* ---- Vectors ------------------------------------------------------------- */

BODY float body_scale(float alpha, float x) {
    return x * alpha;
}

BODY float body_add(float x, float y) {
    return y + x;
}

BODY float body_axpy(float alpha, float x, float y) {
    return y + alpha * x;
}

/* n / divisor by two products, where `inverse` is body_inverse(divisor): exact for all
 * of 32 bits (Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019). The
 * GPU has no divide instruction. */
BODY uint64_t body_inverse(uint32_t divisor) {
    return UINT64_MAX / divisor + 1; /* of 1 it wraps to 0 */
}

BODY uint32_t body_quotient(uint32_t n, uint64_t inverse) {
    uint64_t high = (inverse >> 32) * n, low = (inverse & UINT32_MAX) * n;
    return inverse ? (uint32_t)((high + (low >> 32)) >> 32) : n;
}

BODY float body_normalize(uint8_t x, float mean, float scale) {
    return (body_of_u8(x) - mean) * scale;
}

BODY uint16_t body_add_bf16(uint16_t x, uint16_t y) {
    return body_bf16_of(body_of_bf16(y) + body_of_bf16(x));
}

BODY uint16_t body_add_f16(uint16_t x, uint16_t y) {
    return body_f16_of(body_of_f16(y) + body_of_f16(x));
}

/* The sum of s[0 .. count-1] in the SDK's pairwise order; `most`, a power of two, is a
 * compile-time constant, so that s stays in registers. Sums of 8, added pairwise
 * again, give the pairwise sum of all: the kernels do that above 8. */
BODY float body_pairwise(float *s, int most, int count) {
    UNROLL for (int stride = 1; stride < most; stride *= 2) {
        UNROLL for (int k = 0; k + stride < most; k += 2 * stride) {
            if (k + stride < count)
                s[k] += s[k + stride];
        }
    }
    return s[0];
}

/* ---- A mean ------------------------------------------------------------------ */

/* *y += alpha * x[0] / x[1] */
BODY void body_add_mean(float alpha, const float *x, float *y) {
    if (x[1] != 0.0f)
        *y += alpha * x[0] / x[1];
}

/* ---- The loss scale ---------------------------------------------------------- */

BODY void body_update_scale(dlc_loss_scale *scale, double square,
                            int32_t growth_interval) {
    const float least = 1.0f, most = 0x1p24f;
    scale->inverse = 1.0f / scale->scale;
    scale->overflow = !(square < (double)INFINITY); /* NaN, too */
    if (scale->overflow) {
        scale->scale = scale->scale / 2 > least ? scale->scale / 2 : least;
        scale->good_iterations = 0;
        scale->skipped++;
    } else if (++scale->good_iterations >= growth_interval) {
        scale->scale = scale->scale * 2 < most ? scale->scale * 2 : most;
        scale->good_iterations = 0;
    }
}

#endif
