/* The arithmetic limit of this machine: multiply-adds in registers, all cores at once,
 * GFLOP/s (two operations each); in float32, or of bf16 pairs added in float32 (0
 * if the CPU has none). bench/side_by_side.py compiles and runs it:
 *     cc -O3 -march=native -fopenmp bench/peak.c -o peak && ./peak THREADS [bf16]
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

/* Enough chains to hide the latency of a multiply-add on two units. */
enum { CHAINS = 12 };
static const long steps = 60000000;

static float run_chains(float factor, float term) {
    vector chain[CHAINS], x = {0}, y = {0};
    x += factor;
    y += term;
    for (int i = 0; i < CHAINS; i++)
        chain[i] = x * (float)i;
    for (long step = 0; step < steps; step++)
        for (int i = 0; i < CHAINS; i++)
            chain[i] = chain[i] * x + y;
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += chain[i][0];
    return sum;
}

#if defined(__AVX512BF16__)
static float run_bf16_chains(float factor, float term) {
    __m512 chain[CHAINS], all = _mm512_set1_ps(factor);
    __m512bh x = _mm512_cvtne2ps_pbh(all, all), y = _mm512_cvtne2ps_pbh(all, -all);
    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm512_set1_ps(term * (float)i);
    for (long step = 0; step < steps; step++)
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm512_dpbf16_ps(chain[i], x, y);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += _mm512_reduce_add_ps(chain[i]);
    return sum;
}
enum { HAS_BF16 = 1 };
#else
#define run_bf16_chains run_chains
enum { HAS_BF16 = 0 };
#endif

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : omp_get_max_threads();
    int bf16 = argc > 2 && strcmp(argv[2], "bf16") == 0;
    double best = 0;
    float sink = 0;
    for (int round = 0; round < 3 && (HAS_BF16 || !bf16); round++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : sink)
        sink += bf16 ? run_bf16_chains(0.999f, 0.001f * (float)argc)
                     : run_chains(0.999f, 0.001f * (float)argc);
        double seconds = omp_get_wtime() - start;
        double rate = (bf16 ? 4e-9 : 2e-9) * LANES * CHAINS * (double)steps * threads /
                      seconds;
        best = rate > best ? rate : best;
    }
    printf("%.1f\n", best);
    return sink == 12345; /* used, so that nothing is optimized away */
}
