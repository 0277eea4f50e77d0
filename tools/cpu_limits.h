/* Measures what this machine's CPU can do at most: multiply-adds and bytes of memory a
 * second. Used by `dlcore time` and bench/peak.c; needs nothing else of dlcore. */
#ifndef DLC_TOOLS_CPU_LIMITS_H
#define DLC_TOOLS_CPU_LIMITS_H

#include <stddef.h>

/* The best of several measurements, of all threads together; 0: the CPU has no such
 * instructions, or there was no thread or no memory to measure it with. */
typedef struct dlc_cpu_limits {
    /* 10^9 operations a second, two per multiply-add, in registers. */
    double float32;   /* in the widest vectors */
    double bf16;      /* products of bf16 added in float32, in vectors (AVX-512) */
    double bf16_tile; /* the same in tiles (AMX) */
    /* 10^9 bytes a second of arrays that are larger than the caches. */
    double read;
    double copy; /* read and written, past the caches where the CPU can */
} dlc_cpu_limits;

/* Each limit is measured several times for `seconds`, with `bytes` of memory. */
void dlc_cpu_limits_measure(int threads, size_t bytes, double seconds,
                            dlc_cpu_limits *limits);

/* The limit of arithmetic in bf16: the fastest of all ways, since float32 can stand in
 * for it. */
double dlc_cpu_limits_bf16(const dlc_cpu_limits *limits);
/* The limit of moving bytes. */
double dlc_cpu_limits_memory(const dlc_cpu_limits *limits);

#endif
