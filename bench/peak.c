/* The arithmetic limit of this machine: float32 multiply-adds in registers, all cores
 * at once, GFLOP/s (two operations each). bench/train.sh compiles and runs it:
 *     cc -O3 -march=native -fopenmp bench/peak.c -o peak && ./peak THREADS
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

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

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : omp_get_max_threads();
    double best = 0;
    float sink = 0;
    for (int round = 0; round < 3; round++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : sink)
        sink += run_chains(0.999f, 0.001f * (float)argc);
        double seconds = omp_get_wtime() - start;
        double rate = 2e-9 * LANES * CHAINS * (double)steps * threads / seconds;
        best = rate > best ? rate : best;
    }
    printf("%.1f\n", best);
    return sink == 0; /* used, so that nothing is optimised away */
}
