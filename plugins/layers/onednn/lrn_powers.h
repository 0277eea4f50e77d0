/* The powers of local response normalisation, for files that are compiled once for each
 * instruction set. */
#ifndef ONEDNN_LRN_POWERS_H
#define ONEDNN_LRN_POWERS_H

#include "vectors.h"

typedef struct powers {
    vec minus_one, minus_three_quarters;
} powers;

/* Of finite x > 0; larger ones count as the limit, NaN stays. */
#if defined(__AVX512F__)
/* From estimates of 14 bits, since roots and divisions are slow: if y is near x^(-3/4),
 * and e = 1 - y^4 x^3, then y (1 + e / 4) is so to float32's precision. */
ALWAYS powers powers_of(vec x) {
    x = (vec)_mm512_min_ps(_mm512_set1_ps(1e37f), (__m512)x); /* its second, if NaN */
    vec half = (vec)_mm512_rsqrt14_ps((__m512)x);
    vec y = half * half * (vec)_mm512_rsqrt14_ps((__m512)half);
    half = y * x * y;
    vec e = 1.0f - half * x * half, one = half * half;
    return (powers){one + one * e, y + 0.25f * y * e};
}
#else
ALWAYS vec root_of(vec x) {
#ifdef __AVX2__
    return (vec)_mm256_sqrt_ps((__m256)x);
#else
    for (size_t i = 0; i < LANES; i++)
        x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

ALWAYS powers powers_of(vec x) {
    const vec most = (vec){0} + 1e37f;
    vec half = 1.0f / root_of(choose(less_equal(most, x), most, x));
    return (powers){half * half, half * root_of(half)};
}
#endif

#endif
