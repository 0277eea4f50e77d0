/* Kernels: single-threaded loops over float32. compute.c runs them on the threads. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "bf16.h"
#include "cpu.h"

CLONES void kernel_scale(size_t n, float alpha, float *x) {
    for (size_t i = 0; i < n; i++)
        x[i] *= alpha;
}

CLONES void kernel_add(size_t n, const float *x, float *y) {
    EACH for (size_t i = 0; i < n; i++) y[i] += x[i];
}

CLONES void kernel_add_bf16(size_t n, const uint16_t *x, uint16_t *y) {
    EACH for (size_t i = 0; i < n; i++)
        y[i] = bf16_of(float_of_bf16(y[i]) + float_of_bf16(x[i]));
}

CLONES void kernel_axpy(size_t n, float alpha, const float *x, float *y) {
    EACH for (size_t i = 0; i < n; i++) y[i] += alpha * x[i];
}

/* Sixteen partial sums, added at the end: the order depends on n alone. */
CLONES double kernel_squares(size_t n, const float *x) {
    double sums[16] = {0};
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 16; k++)
            sums[k] += (double)x[i + k] * (double)x[i + k];
    for (size_t k = 0; i < n; i++, k++)
        sums[k] += (double)x[i] * (double)x[i];
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

/* The order of the cuda device, where a block of threads adds. */
CLONES double kernel_total(size_t n, const double *x) {
    enum { LANES = 256 };
    double sums[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sums[k] += x[i + k];
    for (size_t k = 0; i < n; i++, k++)
        sums[k] += x[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

CLONES void kernel_normalize(size_t n, const uint8_t *src, float mean, float scale,
                             float *dst) {
    EACH for (size_t i = 0; i < n; i++) dst[i] = ((float)src[i] - mean) * scale;
}

CLONES static void sum2(size_t n, const float *a, const float *b, float *dst) {
    EACH for (size_t i = 0; i < n; i++) dst[i] = a[i] + b[i];
}

CLONES static void sum3(size_t n, const float *a, const float *b, const float *c,
                        float *dst) {
    EACH for (size_t i = 0; i < n; i++) dst[i] = (a[i] + b[i]) + c[i];
}

CLONES static void sum4(size_t n, const float *a, const float *b, const float *c,
                        const float *d, float *dst) {
    EACH for (size_t i = 0; i < n; i++) dst[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

/* Block size of a sum: small enough for its partial sums, one per level of the tree, to
 * stay in the L1 cache. */
enum { BLOCK = 1024 };

/* dst = the pairwise sum of sources[0 .. count-1][at .. at+n-1]: the sum of the first
 * half (a power of two) plus that of the rest, recursively. Every element of a source
 * is read before the same element of dst is written, so dst may be a source. */
static void sum_block(size_t at, size_t n, const float *const *sources, int32_t count,
                      float *dst) {
    const float *const *s = sources;

    switch (count) {
    case 1:
        if (dst != s[0] + at)
            memcpy(dst, s[0] + at, n * sizeof *dst);
        return;
    case 2:
        sum2(n, s[0] + at, s[1] + at, dst);
        return;
    case 3:
        sum3(n, s[0] + at, s[1] + at, s[2] + at, dst);
        return;
    case 4:
        sum4(n, s[0] + at, s[1] + at, s[2] + at, s[3] + at, dst);
        return;
    default:
        break;
    }

    float left[BLOCK], right[BLOCK];
    int32_t half = 4;
    while (half < count - half)
        half *= 2;
    sum_block(at, n, s, half, left);
    if (count - half == 1) {
        sum2(n, left, s[half] + at, dst);
    } else {
        sum_block(at, n, s + half, count - half, right);
        sum2(n, left, right, dst);
    }
}

void kernel_sum(size_t begin, size_t end, const float *const *sources, int32_t count,
                float *dst) {
    size_t step = count <= 4 ? end - begin : BLOCK;

    for (size_t at = begin; at < end; at += step) {
        size_t n = end - at < step ? end - at : step;
        sum_block(at, n, sources, count, dst + at);
    }
}

CLONES static void sum2_to2(size_t n, const float *a, const float *b, float *x,
                            float *y) {
    EACH for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        x[i] = sum;
        y[i] = sum;
    }
}

/* Elements before the first whole cache line, where vectors begin that don't straddle
 * two. The buffers of a collective all have the same alignment. */
static size_t until_aligned(const float *at, size_t most) {
    enum { LINE = 16 };
    size_t off = (uintptr_t)at / sizeof *at % LINE, n = off > 0 ? LINE - off : 0;
    return n < most ? n : most;
}

void kernel_sum_to(size_t begin, size_t end, const float *const *sources, int32_t count,
                   float *const *dsts, int32_t dst_count) {
    int two = count == 2 && dst_count == 2;
    size_t n = until_aligned(dsts[0] + begin, end - begin);

    for (size_t at = begin; at < end; at += n, n = end - at) {
        if (two) {
            sum2_to2(n, sources[0] + at, sources[1] + at, dsts[0] + at, dsts[1] + at);
            continue;
        }
        n = n < BLOCK ? n : BLOCK;
        sum_block(at, n, sources, count, dsts[0] + at);
        for (int32_t i = 1; i < dst_count; i++)
            if (dsts[i] != dsts[0])
                memcpy(dsts[i] + at, dsts[0] + at, n * sizeof *dsts[i]);
    }
}

/* Stores a block past the caches, since what is only written need not be read first.
 * Both pointers are aligned to a cache line. */
static void stream_block(float *dst, const float *src) {
#ifdef __SSE2__
    for (size_t i = 0; i < BLOCK; i += sizeof(__m128) / sizeof *dst)
        _mm_stream_ps(dst + i, _mm_load_ps(src + i));
#else
    memcpy(dst, src, BLOCK * sizeof *dst);
#endif
}

/* Orders streaming stores before the store that publishes them. */
static void fence_stores(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

void kernel_update(size_t begin, size_t end, const dlc_rule *rule,
                   const dlc_rule_step *step, const float *gradient,
                   float *const *slots, float *weight) {
    float *at[DLC_MAX_SLOTS] = {0};
    for (int32_t k = 0; k < rule->slots; k++)
        at[k] = slots[k] + begin;
    rule->run(step, end - begin, gradient, at, weight + begin);
}

/* The sum of a block stays in the L1 cache. It is at the weights' distance from a
 * multiple of 4096 bytes: a CPU that compares 12 bits of addresses first would take
 * stores to the weights for stores to what is read of the sum next. */
void kernel_update_to(size_t begin, size_t end, const dlc_rule *rule,
                      const dlc_rule_step *step, const float *const *gradients,
                      int32_t count, float *const *slots, float *const *weights,
                      int32_t weight_count) {
    enum { LARGE = 1 << 18 }; /* elements; more than one core's own caches hold */
    int streaming = end - begin >= LARGE;
    _Alignas(sizeof(float) * BLOCK) float room[2 * BLOCK];
    size_t n = until_aligned(weights[0] + begin, end - begin);

    for (size_t at = begin; at < end; at += n, n = end - at) {
        float *sum = room + (uintptr_t)(weights[0] + at) / sizeof *room % BLOCK;
        const float *gradient = count > 1 ? sum : gradients[0] + at;
        n = n < BLOCK ? n : BLOCK;
        if (count > 1)
            sum_block(at, n, gradients, count, sum);
        kernel_update(at, at + n, rule, step, gradient, slots, weights[0]);
        for (int32_t i = 1; i < weight_count; i++) {
            if (streaming && n == BLOCK && until_aligned(weights[i] + at, n) == 0)
                stream_block(weights[i] + at, weights[0] + at);
            else
                memcpy(weights[i] + at, weights[0] + at, n * sizeof *room);
        }
    }
    if (streaming)
        fence_stores();
}
