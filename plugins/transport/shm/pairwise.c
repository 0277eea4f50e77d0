/* Sums that the CPU computes from what a device has copied to shared memory, in the
 * SDK's order: pairs of ranks, then pairs of these sums, and so on. */
#include <string.h>

#include "shm.h"

enum {
    BLOCK = 1024, /* elements; the partial sums stay in the L1 cache */
    FEW = 4,      /* sources per pass */
};

/* Each element is read before it is written, so iterations are independent even where
 * dst is one of the sources. */
#define EACH _Pragma("GCC ivdep")

static void sum_few(size_t n, const float *const *s, int32_t count, size_t at,
                    float *dst) {
    const float *a = s[0] + at, *b = count > 1 ? s[1] + at : NULL;
    const float *c = count > 2 ? s[2] + at : NULL, *d = count > 3 ? s[3] + at : NULL;

    if (d)
        EACH for (size_t i = 0; i < n; i++) dst[i] = (a[i] + b[i]) + (c[i] + d[i]);
    else if (c)
        EACH for (size_t i = 0; i < n; i++) dst[i] = (a[i] + b[i]) + c[i];
    else if (b)
        EACH for (size_t i = 0; i < n; i++) dst[i] = a[i] + b[i];
    else if (dst != a)
        memcpy(dst, a, n * sizeof *dst);
}

/* Splits the sources at the largest power of two below the count. */
static void sum_block(size_t n, const float *const *s, int32_t count, size_t at,
                      float *dst) {
    float low[BLOCK], high[BLOCK];
    int32_t half = FEW;

    if (count <= FEW) {
        sum_few(n, s, count, at, dst);
        return;
    }
    while (2 * half < count)
        half *= 2;
    sum_block(n, s, half, at, low);
    sum_block(n, s + half, count - half, at, high);
    EACH for (size_t i = 0; i < n; i++) dst[i] = low[i] + high[i];
}

void pairwise_sum(size_t n, const float *const *sources, int32_t count, float *dst) {
    for (size_t at = 0; at < n; at += BLOCK)
        sum_block(n - at < BLOCK ? n - at : BLOCK, sources, count, at, dst + at);
}
