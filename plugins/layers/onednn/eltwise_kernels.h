/* Loops over contiguous numbers, for eltwise: single-threaded, compiled once for each
 * instruction set. Tensors are float32, or bfloat16 if `bf16` is set. */
#ifndef ONEDNN_ELTWISE_KERNELS_H
#define ONEDNN_ELTWISE_KERNELS_H

#include <stddef.h>

#include "../shared/bounds.h"

typedef struct eltwise_kernels {
    const char *name;
    /* out = bounded(a + b); out may be a or b. `stream`: uses streaming stores, to an
     * aligned address. */
    void (*add)(int bf16, size_t count, const void *a, const void *b,
                const bounds *limit, int stream, void *out);
    /* first = second = diff where `out` was not bounded, else times the slope; either
     * may be NULL or diff, out is NULL if there are no bounds. */
    void (*gradient)(int bf16, size_t count, const void *out, const void *diff,
                     const bounds *limit, int stream, void *first, void *second);
    void (*widen)(size_t count, const void *bf16, float *to);
    void (*narrow)(size_t count, const float *from, void *bf16);
} eltwise_kernels;

/* Those with the widest vectors that may be used here. */
const eltwise_kernels *eltwise_kernels_here(void);

extern const eltwise_kernels eltwise_base;
#ifdef __x86_64__
extern const eltwise_kernels eltwise_avx512, eltwise_avx2;
#endif

#endif
