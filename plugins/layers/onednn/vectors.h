/* Vectors of LANES floats, for files that are compiled once for each instruction set
 * (per_isa.h; CMakeLists.txt defines LANES): loads and stores of float32 and bfloat16,
 * of whole vectors and of their first lanes, selection by comparison, and fused
 * activations. */
#ifndef ONEDNN_VECTORS_H
#define ONEDNN_VECTORS_H

#ifdef __AVX2__
#include <immintrin.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../shared/bounds.h"

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
/* Unaligned vectors in memory. */
typedef float vec_there __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves_there
    __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

#define ALWAYS static inline __attribute__((always_inline))
/* A loop that must be unrolled completely, or its vectors would live in memory. */
#define EACH(i, count) _Pragma("GCC unroll 8") for (size_t i = 0; (i) < (count); (i)++)

/* ---- Selection ----------------------------------------------------------------- */

#ifdef __AVX512F__
typedef __mmask16 mask;

ALWAYS mask less_equal(vec a, vec b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
}

ALWAYS vec choose(mask which, vec yes, vec no) {
    return (vec)_mm512_mask_blend_ps(which, (__m512)no, (__m512)yes);
}

ALWAYS mask first_lanes(size_t lanes) {
    return (mask)((1u << lanes) - 1);
}
#else
typedef bits mask;

ALWAYS mask less_equal(vec a, vec b) {
    return (mask)(a <= b);
}

ALWAYS vec choose(mask which, vec yes, vec no) {
    return (vec)(((bits)yes & which) | ((bits)no & ~which));
}

static inline mask first_lanes(size_t lanes) {
    uint32_t wanted[LANES];
    mask which;
    for (size_t i = 0; i < LANES; i++)
        wanted[i] = i < lanes ? ~0u : 0;
    memcpy(&which, wanted, sizeof which);
    return which;
}
#endif

/* ---- Memory -------------------------------------------------------------------- */

/* How a vector of a tensor is accessed: its type, and whether only its first lanes
 * exist. A compile-time constant in every use, so no test of it remains. */
typedef struct access {
    int bf16, partial;
    size_t lanes; /* if partial */
} access;

ALWAYS vec from_halves(halves h) {
#ifdef __AVX512F__
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
    return (vec)(__builtin_convertvector(h, bits) << 16);
#endif
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
ALWAYS halves to_halves(vec v) {
#ifdef __AVX512BF16__
    return (halves)_mm512_cvtneps_pbh((__m512)v);
#endif
    bits b = (bits)v, odd = (b >> 16) & 1;
    bits rounded = (b + 0x7fff + odd) >> 16, none = (b >> 16) | 0x40;
    bits is_none = (bits)((b & 0x7fffffff) > 0x7f800000);
    return __builtin_convertvector((rounded & ~is_none) | (none & is_none), halves);
}

static inline vec load_some(access kind, const void *from) {
    if (kind.bf16) {
        halves h = {0};
#ifdef __AVX512BW__
        h = (halves)_mm256_maskz_loadu_epi16(first_lanes(kind.lanes), from);
#else
        memcpy(&h, from, kind.lanes * sizeof(uint16_t));
#endif
        return from_halves(h);
    }
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_ps(first_lanes(kind.lanes), from);
#elif defined(__AVX2__)
    return (vec)_mm256_maskload_ps(from, (__m256i)first_lanes(kind.lanes));
#else
    vec v = {0};
    memcpy(&v, from, kind.lanes * sizeof(float));
    return v;
#endif
}

/* Missing lanes are read as zero. */
ALWAYS vec load(access kind, const void *from) {
    if (kind.partial)
        return load_some(kind, from);
    return kind.bf16 ? from_halves((halves) * (const halves_there *)from)
                     : (vec) * (const vec_there *)from;
}

static inline void store_some(access kind, void *to, vec v) {
    if (kind.bf16) {
        halves h = to_halves(v);
#ifdef __AVX512BW__
        _mm256_mask_storeu_epi16(to, first_lanes(kind.lanes), (__m256i)h);
#else
        memcpy(to, &h, kind.lanes * sizeof(uint16_t));
#endif
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, first_lanes(kind.lanes), (__m512)v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(to, (__m256i)first_lanes(kind.lanes), (__m256)v);
#else
    memcpy(to, &v, kind.lanes * sizeof(float));
#endif
}

ALWAYS void store(access kind, void *to, vec v) {
    if (kind.partial)
        store_some(kind, to, v);
    else if (kind.bf16)
        *(halves_there *)to = (halves_there)to_halves(v);
    else
        *(vec_there *)to = (vec_there)v;
}

/* A whole aligned vector of float32. */
ALWAYS const vec *vec_at(const float *at) {
    return (const vec *)(const void *)at;
}

ALWAYS vec *vec_to(float *at) {
    return (vec *)(void *)at;
}

/* A whole vector of float32 anywhere. */
ALWAYS vec floats_at(const float *from) {
    return (vec) * (const vec_there *)(const void *)from;
}

ALWAYS void floats_to(float *to, vec v) {
    *(vec_there *)(void *)to = (vec_there)v;
}

/* Element `i` of a tensor. */
ALWAYS const void *element(access kind, const void *base, size_t i) {
    return (const char *)base + i * (kind.bf16 ? sizeof(uint16_t) : sizeof(float));
}

ALWAYS void *element_to(access kind, void *base, size_t i) {
    return (char *)base + i * (kind.bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* Stores a whole aligned vector past the caches; call stream_end() before other threads
 * read it. */
ALWAYS void store_stream(access kind, void *to, vec v) {
#if defined(__AVX512F__)
    if (kind.bf16)
        _mm256_stream_si256(to, (__m256i)to_halves(v));
    else
        _mm512_stream_ps(to, (__m512)v);
#elif defined(__AVX2__)
    if (kind.bf16)
        _mm_stream_si128(to, (__m128i)to_halves(v));
    else
        _mm256_stream_ps(to, (__m256)v);
#else
    store(kind, to, v);
#endif
}

/* Stores a vector, past the caches if it is whole and `stream` is set. */
ALWAYS void put(access kind, int stream, void *to, vec v) {
    if (stream && !kind.partial)
        store_stream(kind, to, v);
    else
        store(kind, to, v);
}

/* `count` adjacent vectors, 1 or 2. `stream`: 0, or as store_stream, or STREAM_LINES if
 * two vectors of bfloat16 are a whole cache line. */
enum { STREAM_LINES = 2 };

ALWAYS void store_adjacent(access kind, size_t count, int stream, void *to,
                           const vec v[2]) {
#ifdef __AVX512BF16__
    if (kind.bf16 && count == 2 && stream != 1) {
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)v[1], (__m512)v[0]);
        if (stream)
            _mm512_stream_si512(to, both);
        else
            _mm512_storeu_si512(to, both);
        return;
    }
#endif
    EACH(u, count) {
        put(kind, stream, element_to(kind, to, u * LANES), v[u]);
    }
}

/* Fetches memory into a core's own cache before it is needed. The memory need not
 * exist. */
ALWAYS void fetch_ahead(const void *from, size_t bytes) {
    EACH(i, (bytes + 63) / 64) {
        __builtin_prefetch((const char *)from + i * 64, 0, 2);
    }
}

ALWAYS void stream_end(void) {
#ifdef __AVX2__
    _mm_sfence();
#endif
}

/* ---- Fused activations --------------------------------------------------------- */

/* `bounds` in registers, and the kind of code they need, which is a compile-time
 * constant in every use. */
typedef enum limit_kind { LIMIT_NONE, LIMIT_RELU, LIMIT_ANY, LIMIT_KINDS } limit_kind;

typedef struct limits {
    vec low, high, slope;
    bits sloped; /* all ones if there is a slope */
} limits;

static inline limit_kind limit_kind_of(const bounds *b) {
    if (b->low == -INFINITY && b->high == INFINITY)
        return LIMIT_NONE;
    return b->low == 0 && b->high == INFINITY && b->slope == 0 ? LIMIT_RELU : LIMIT_ANY;
}

ALWAYS limits limits_of(const bounds *b) {
    return (limits){.low = (vec){0} + b->low,
                    .high = (vec){0} + b->high,
                    .slope = (vec){0} + b->slope,
                    .sloped = (bits){0} - (b->slope != 0)};
}

/* NaN stays NaN. */
ALWAYS vec bounded(limit_kind kind, const limits *l, vec v) {
    if (kind == LIMIT_NONE)
        return v;
    if (kind == LIMIT_RELU)
        return choose(less_equal(v, (vec){0}), (vec){0}, v);
    vec under = (vec)((bits)(l->slope * v) & l->sloped) + l->low;
    v = choose(less_equal(v, l->low), under, v);
    return choose(less_equal(l->high, v), l->high, v);
}

/* `diff` times the slope at v, which is the input or the output of `bounded`. */
ALWAYS vec bounded_gradient(limit_kind kind, const limits *l, vec v, vec diff) {
    if (kind == LIMIT_NONE)
        return diff;
    if (kind == LIMIT_RELU)
        return choose(less_equal(v, (vec){0}), (vec){0}, diff);
    vec under = (vec)((bits)(l->slope * diff) & l->sloped);
    diff = choose(less_equal(v, l->low), under, diff);
    return choose(less_equal(l->high, v), (vec){0}, diff);
}

#endif
