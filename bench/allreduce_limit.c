/* The limit of an all-reduce on this machine: processes that sum each other's memory in
 * place, each its own part of every buffer, with a barrier before and after, and
 * nothing else. Transports with registered memory are compared with this.
 *
 *     cc -O3 -o build/allreduce_limit bench/allreduce_limit.c
 *     build/allreduce_limit [processes [bytes...]]
 *
 * Prints a row per size: bytes; the mean microseconds of a call, as in other
 * benchmarks; the median and the minimum of short samples; and the bus bandwidth that
 * nccl-tests would show for the mean.
 */
#define _GNU_SOURCE 1
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#define HUGE_PAGE ((size_t)2 << 20)

enum { MOST = 16, LINE = 64, SAMPLES = 2000, SECONDS = 1 };

typedef struct flag {
    _Alignas(LINE) _Atomic uint64_t round;
} flag;

typedef struct shared {
    flag flags[MOST];
    double us[SAMPLES];
    int samples, stop;
} shared;

typedef struct job {
    shared *shared;
    float *buffer[MOST];
    int me, ranks;
    uint64_t round;
} job;

static double now_us(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pause_core(int looks) {
    if (looks > 100000)
        (void)sched_yield(); /* the other process may need this core */
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void barrier(job *j) {
    int looks = 0;
    j->round++;
    atomic_store(&j->shared->flags[j->me].round, j->round);
    for (int r = 0; r < j->ranks; r++)
        while (atomic_load_explicit(&j->shared->flags[r].round, memory_order_acquire) <
               j->round)
            pause_core(looks++);
}

#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#endif
static void
sum2(size_t n, float *a, float *b) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#endif
static void
add(size_t n, float *restrict to, const float *restrict from) {
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#endif
static void
copy(size_t n, float *restrict to, const float *restrict from) {
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* More than two processes: chunk by chunk in the L1 cache. */
static void sum_many(const job *j, size_t begin, size_t end) {
    enum { PIECE = 512 };
    for (size_t at = begin; at < end; at += PIECE) {
        size_t n = end - at < PIECE ? end - at : PIECE;
        for (int r = 1; r < j->ranks; r++)
            add(n, j->buffer[0] + at, j->buffer[r] + at);
        for (int r = 1; r < j->ranks; r++)
            copy(n, j->buffer[r] + at, j->buffer[0] + at);
    }
}

static void all_reduce(job *j, size_t count) {
    size_t lines = (count + 15) / 16, ranks = (size_t)j->ranks, me = (size_t)j->me;
    size_t begin = lines * me / ranks * 16, end = lines * (me + 1) / ranks * 16;

    end = end < count ? end : count;
    barrier(j);
    if (begin < end && j->ranks == 2)
        sum2(end - begin, j->buffer[0] + begin, j->buffer[1] + begin);
    else if (begin < end)
        sum_many(j, begin, end);
    barrier(j);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Short samples, so that some are undisturbed if the machine has other load. */
static void run_rank(job *j, size_t bytes) {
    shared *s = j->shared;
    size_t count = bytes / sizeof(float), calls = 1 + (2 << 20) / (bytes + (16 << 10));
    double since = now_us();

    all_reduce(j, count);
    for (int i = 0; i < SAMPLES && !s->stop; i++) {
        double begin = now_us();
        for (size_t k = 0; k < calls; k++)
            all_reduce(j, count);
        double end = now_us();
        if (j->me == 0) {
            s->us[s->samples++] = (end - begin) / (double)calls;
            s->stop = end - since > SECONDS * 1e6;
        }
        barrier(j); /* so that all read the same `stop` */
    }
}

/* Binds to one of the allowed cores, round robin. */
static void bind_to(const cpu_set_t *all, int number) {
    cpu_set_t one;

    number %= CPU_COUNT(all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all) && number-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static void *share(size_t bytes) {
    char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *at = room + (HUGE_PAGE - (uintptr_t)room % HUGE_PAGE);
    if (room == MAP_FAILED ||
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

/* Fills this process's page tables, with huge pages if possible. */
static void touch(float *buffer, size_t bytes) {
    (void)madvise(buffer, bytes, MADV_COLLAPSE);
    for (size_t i = 0; i < bytes / sizeof(float); i += 1024)
        *(volatile float *)(buffer + i) = 0.0f;
}

static void measure(const cpu_set_t *cores, int ranks, size_t bytes) {
    job j = {.shared = share(sizeof *j.shared), .ranks = ranks};

    for (int r = 0; r < ranks; r++)
        j.buffer[r] = share(bytes);
    for (j.me = 1; j.me < ranks; j.me++)
        if (fork() == 0)
            break;
    j.me %= ranks;
    bind_to(cores, j.me);
    for (int r = 0; r < ranks; r++)
        touch(j.buffer[r], bytes);
    run_rank(&j, bytes);
    if (j.me != 0)
        _exit(0);
    while (wait(NULL) > 0)
        ;
    double mean = 0;
    for (int i = 0; i < j.shared->samples; i++)
        mean += j.shared->us[i] / j.shared->samples;
    qsort(j.shared->us, (size_t)j.shared->samples, sizeof *j.shared->us, by_size);
    printf("%12zu %12.2f %12.2f %12.2f %10.2f\n", bytes, mean,
           j.shared->us[j.shared->samples / 2], j.shared->us[0],
           (double)bytes * 2 * (ranks - 1) / ranks / mean / 1e3);
    (void)fflush(stdout);
    for (int r = 0; r < ranks; r++)
        (void)munmap(j.buffer[r], bytes);
    (void)munmap(j.shared, sizeof *j.shared);
}

int main(int argc, char **argv) {
    static const size_t usual[] = {4096, 65536, 1 << 20, 16 << 20, 240 << 20};
    int ranks = argc > 1 ? atoi(argv[1]) : 2;
    cpu_set_t cores;

    if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
        perror("sched_getaffinity");
        return 1;
    }
    if (ranks < 2 || ranks > MOST) {
        fprintf(stderr, "usage: allreduce_limit [2..%d [bytes...]]\n", MOST);
        return 2;
    }
    printf("%12s %12s %12s %12s %10s\n", "bytes", "us (mean)", "us (median)",
           "us (min)", "bus GB/s");
    for (int i = 2; i < argc; i++)
        measure(&cores, ranks, (size_t)strtoull(argv[i], NULL, 10) / 4 * 4);
    for (size_t i = 0; argc <= 2 && i < sizeof usual / sizeof *usual; i++)
        measure(&cores, ranks, usual[i]);
    return 0;
}
