/* The instruction set that our own kernels use: the one that oneDNN detects, limited by
 * ONEDNN_MAX_CPU_ISA. */
#ifndef ONEDNN_ISA_H
#define ONEDNN_ISA_H

#include <oneapi/dnnl/dnnl.h>

typedef enum isa { ISA_BASE, ISA_AVX2, ISA_AVX512 } isa;

static inline isa isa_here(void) {
#ifdef __x86_64__
    unsigned can = dnnl_get_effective_cpu_isa();
    if ((can & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        return ISA_AVX512;
    if ((can & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2)
        return ISA_AVX2;
#endif
    return ISA_BASE;
}

/* The initializer of an array of pointers by isa, to the tables that a file defines
 * which is compiled once for each (per_isa.h): ISA_TABLES(pool_). */
#ifdef __x86_64__
#define ISA_TABLES(name) \
    { &name##base, &name##avx2, &name##avx512 }
#else
#define ISA_TABLES(name) \
    { &name##base, &name##base, &name##base }
#endif

#endif
