/* Runs loops that do nothing but multiply and add, or read, or copy, on several
 * threads, and takes the time. The instructions are chosen at run time. */
#include "cpu_limits.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
/* The address sanitizer would misalign vectors on the stack (GCC 110027). */
#define TARGET(features) __attribute__((target(features), no_sanitize("address")))
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Chains must be registers whatever the optimization. */
#define UNROLLED _Pragma("GCC unroll 12")

/* Enough chains to hide the latency of a multiply-add on two units; enough steps to
 * take far longer than reading a clock. */
enum { CHAINS = 12, STEPS = 20000, ROUNDS = 3, PIECE = 1 << 20, THREADS_MOST = 1024 };

typedef struct limit_worker limit_worker;
/* Does some work and returns how much: operations or bytes. */
typedef double limit_kernel(limit_worker *worker);

struct limit_worker {
    limit_kernel *kernel;
    double seconds;    /* how long to work */
    double rate;       /* the work of a second */
    float *from, *to;  /* memory of this thread, `bytes` each */
    size_t bytes, at;  /* of each; where the next piece begins */
    float factor, sum; /* what the compiler can't know, so that it leaves nothing out */
    char more[64];     /* no two threads write to one cache line */
};

/* ---- Multiply-adds --------------------------------------------------------------- */

/* Defines a kernel: `CHAINS` chains of multiply-adds of vectors. */
#define DEFINE_CHAINS(name, type, lanes, set, multiply_add) \
    static double name(limit_worker *worker) { \
        type chain[CHAINS], x = set(worker->factor), y = set(0.001f * worker->factor); \
        for (int i = 0; i < CHAINS; i++) \
            chain[i] = set(worker->factor * (float)i); \
        for (int step = 0; step < STEPS; step++) \
            UNROLLED for (int i = 0; i < CHAINS; i++) \
                chain[i] = multiply_add(chain[i], x, y); \
        for (int i = 0; i < CHAINS; i++) \
            worker->sum += chain[i][0]; \
        return 2.0 * (lanes)*CHAINS * STEPS; \
    }

#if defined(__x86_64__)

TARGET("avx512f")
DEFINE_CHAINS(run_avx512, __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps)
TARGET("avx2,fma")
DEFINE_CHAINS(run_avx2, __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps)
#define sse_multiply_add(a, x, y) _mm_add_ps(_mm_mul_ps(a, x), y)
DEFINE_CHAINS(run_sse, __m128, 4, _mm_set1_ps, sse_multiply_add)

static limit_kernel *float32_kernel(void) {
    if (__builtin_cpu_supports("avx512f"))
        return run_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return run_avx2;
    return run_sse;
}

TARGET("avx512f,avx512bf16")
static double run_bf16(limit_worker *worker) {
    __m512 chain[CHAINS], all = _mm512_set1_ps(worker->factor);
    __m512bh x = _mm512_cvtne2ps_pbh(all, all), y = _mm512_cvtne2ps_pbh(all, -all);
    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm512_set1_ps(worker->factor * (float)i);
    for (int step = 0; step < STEPS; step++)
        UNROLLED for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm512_dpbf16_ps(chain[i], x, y);
    for (int i = 0; i < CHAINS; i++)
        worker->sum += chain[i][0];
    return 2.0 * 32 * CHAINS * STEPS;
}

static limit_kernel *bf16_kernel(void) {
    return __builtin_cpu_supports("avx512bf16") ? run_bf16 : NULL;
}

/* The shapes of the tiles, as ldtilecfg reads them. */
typedef struct tile_config {
    unsigned char palette, start_row, reserved[14];
    unsigned short row_bytes[16];
    unsigned char rows[16];
} tile_config;

/* Four products are underway at once: two tiles times two tiles. In assembler, which no
 * compiler refuses, and which tells it that all of `config` is read. */
static double run_tiles(limit_worker *worker) {
    tile_config config = {.palette = 1};
    unsigned short one[16][32]; /* a full tile of bf16 */
    for (int i = 0; i < 8; i++) {
        config.rows[i] = 16;
        config.row_bytes[i] = sizeof one[0];
    }
    /* Of different signs and digits, as a net's are: on numbers that are all alike
     * tiles run at a higher clock. Between 0.5 and 2. */
    for (size_t i = 0; i < sizeof one / sizeof one[0][0]; i++)
        (&one[0][0])[i] = (unsigned short)(0x3f00 + (i * 7919 & 0x80ff));
    __asm__ volatile(
        "ldtilecfg %0\n\t"
        "tilezero %%tmm0\n\ttilezero %%tmm1\n\t"
        "tilezero %%tmm2\n\ttilezero %%tmm3\n\t"
        "tileloadd (%2,%3,1), %%tmm4\n\ttileloadd (%2,%3,1), %%tmm5\n\t"
        "tileloadd (%2,%3,1), %%tmm6\n\ttileloadd (%2,%3,1), %%tmm7" ::"m"(config),
        "m"(one), "r"(one), "r"(sizeof one[0]));
    for (int step = 0; step < STEPS; step++)
        __asm__ volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n\t"
                         "tdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
                         "tdpbf16ps %tmm6, %tmm5, %tmm2\n\t"
                         "tdpbf16ps %tmm7, %tmm5, %tmm3");
    __asm__ volatile("tilerelease");
    worker->sum += worker->factor;
    return 2.0 * 4 * (16 * 16 * 32) * STEPS;
}

/* The CPU must have tiles, and the kernel must allow this process to use them. */
static limit_kernel *tile_kernel(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    const unsigned wanted = 1u << 24 | 1u << 22; /* AMX-TILE, AMX-BF16 */
    unsigned a, b, c, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted)
        return NULL;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? run_tiles
                                                                       : NULL;
}

#else

#if defined(__aarch64__)
#define neon_multiply_add(a, x, y) vfmaq_f32(y, a, x)
DEFINE_CHAINS(run_vectors, float32x4_t, 4, vdupq_n_f32, neon_multiply_add)
#else
typedef float four_floats __attribute__((vector_size(16)));
#define set_four(value) ((four_floats){value, value, value, value})
#define multiply_add_four(a, x, y) ((a) * (x) + (y))
DEFINE_CHAINS(run_vectors, four_floats, 4, set_four, multiply_add_four)
#endif

static limit_kernel *float32_kernel(void) {
    return run_vectors;
}

static limit_kernel *bf16_kernel(void) {
    return NULL;
}

static limit_kernel *tile_kernel(void) {
    return NULL;
}

#endif

/* ---- Memory ---------------------------------------------------------------------- */

/* Where the next piece begins, in floats. */
static size_t next_piece(limit_worker *worker) {
    size_t begin = worker->at, end = begin + PIECE;
    worker->at = end < worker->bytes ? end : 0;
    return begin / sizeof(float);
}

static double touch(limit_worker *worker) {
    memset(worker->from, 1, worker->bytes);
    memset(worker->to, 1, worker->bytes);
    return 1;
}

static double read_piece(limit_worker *worker) {
    typedef float vector __attribute__((vector_size(32)));
    enum { AT_ONCE = 2 }; /* a line of the cache */
    const vector *from = (const vector *)(worker->from + next_piece(worker));
    vector sum[AT_ONCE] = {{0}};
    for (size_t i = 0; i < PIECE / sizeof *from; i += AT_ONCE) {
        __builtin_prefetch((const char *)(from + i) + 2048);
        for (int j = 0; j < AT_ONCE; j++)
            sum[j] += from[i + (size_t)j];
    }
    sum[0] += sum[1];
    worker->sum += sum[0][0] + sum[0][1] + sum[0][2] + sum[0][3] + sum[0][4] +
                   sum[0][5] + sum[0][6] + sum[0][7];
    return PIECE;
}

static double copy_piece(limit_worker *worker) {
    size_t begin = next_piece(worker);
#if defined(__x86_64__)
    const __m128i *from = (const __m128i *)(worker->from + begin);
    __m128i *to = (__m128i *)(worker->to + begin);
    for (size_t i = 0; i < PIECE / sizeof *from; i++)
        _mm_stream_si128(to + i, _mm_load_si128(from + i));
#else
    memcpy(worker->to + begin, worker->from + begin, PIECE);
#endif
    return 2.0 * PIECE;
}

/* ---- Threads --------------------------------------------------------------------- */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *work(void *argument) {
    limit_worker *worker = argument;
    double done = 0, passed, start = now();
    do {
        done += worker->kernel(worker);
        passed = now() - start;
    } while (passed < worker->seconds);
    worker->rate = done / passed;
    return NULL;
}

/* Runs a kernel on all threads at once and returns 10^9 units of work a second; 0 if a
 * thread could not be started. */
static double run_threads(limit_worker *worker, int threads, limit_kernel *kernel,
                          double seconds) {
    pthread_t thread[THREADS_MOST];
    double rate = 0;
    int started = 0;
    for (int i = 0; i < threads; i++) {
        worker[i].kernel = kernel;
        worker[i].seconds = seconds;
    }
    while (started < threads &&
           pthread_create(&thread[started], NULL, work, &worker[started]) == 0)
        started++;
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        rate += worker[i].rate;
    }
    return started == threads ? rate * 1e-9 : 0;
}

/* The best of several rounds: whatever else runs can only slow one down. */
static double best_rate(limit_worker *worker, int threads, limit_kernel *kernel,
                        double seconds) {
    double best = 0;
    for (int round = 0; kernel && round < ROUNDS; round++) {
        double rate = run_threads(worker, threads, kernel, seconds);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Each thread writes to its own part first, so that the memory is near to it. */
static void measure_memory(limit_worker *worker, int threads, size_t bytes,
                           double seconds, dlc_cpu_limits *limits) {
    size_t each = bytes / (2 * (size_t)threads) / PIECE * PIECE;
    size_t all = 2 * (size_t)threads * each;
    if (each == 0)
        return;
    float *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                         -1, 0);
    if (memory == MAP_FAILED)
        return;
    madvise(memory, all, MADV_HUGEPAGE);
    for (int i = 0; i < threads; i++) {
        worker[i].bytes = each;
        worker[i].from = memory + 2 * (size_t)i * (each / sizeof *memory);
        worker[i].to = worker[i].from + each / sizeof *memory;
    }
    if (run_threads(worker, threads, touch, 0) > 0) {
        limits->read = best_rate(worker, threads, read_piece, seconds);
        limits->copy = best_rate(worker, threads, copy_piece, seconds);
    }
    munmap(memory, all);
}

void dlc_cpu_limits_measure(int threads, size_t bytes, double seconds,
                            dlc_cpu_limits *limits) {
    *limits = (dlc_cpu_limits){0};
    threads = threads < 1 ? 1 : threads > THREADS_MOST ? THREADS_MOST : threads;
    limit_worker *worker = calloc((size_t)threads, sizeof *worker);
    if (!worker)
        return;
    for (int i = 0; i < threads; i++)
        worker[i].factor = 0.999f;
    limits->float32 = best_rate(worker, threads, float32_kernel(), seconds);
    limits->bf16 = best_rate(worker, threads, bf16_kernel(), seconds);
    limits->bf16_tile = best_rate(worker, threads, tile_kernel(), seconds);
    measure_memory(worker, threads, bytes, seconds, limits);
    free(worker);
}

double dlc_cpu_limits_bf16(const dlc_cpu_limits *limits) {
    double vectors = limits->bf16 > limits->float32 ? limits->bf16 : limits->float32;
    return limits->bf16_tile > vectors ? limits->bf16_tile : vectors;
}

double dlc_cpu_limits_memory(const dlc_cpu_limits *limits) {
    return limits->read > limits->copy ? limits->read : limits->copy;
}
