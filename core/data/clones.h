/* How the loops of core/data are compiled for several instruction sets, of which the
 * loader chooses one. Results do not differ: the files are compiled without contraction
 * into fused multiply-adds, and sums have a fixed order. Not with the thread sanitizer:
 * the function that chooses would run before the sanitizer is ready. */
#ifndef DLC_DATA_CLONES_H
#define DLC_DATA_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define CLONES
#endif

#endif
