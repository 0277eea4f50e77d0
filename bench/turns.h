/* The protocol of the programs that bench/feed.py runs in turns: a line on stdin is the
 * seconds of a turn; the answer is a line with the samples that were loaded, the
 * seconds that passed, and those of CPUs that the process took. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

typedef struct turn {
    double begin, cpu; /* seconds at its beginning */
} turn;

static inline double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Waits for a turn; 0: there are no more. */
static inline int turn_wait(double *seconds) {
    return scanf("%lf", seconds) == 1;
}

static inline turn turn_begin(void) {
    return (turn){wall_seconds(), cpu_seconds()};
}

static inline double turn_passed(const turn *t) {
    return wall_seconds() - t->begin;
}

static inline void turn_end(const turn *t, long samples) {
    printf("%ld %.6f %.6f\n", samples, turn_passed(t), cpu_seconds() - t->cpu);
    fflush(stdout);
}

#endif
