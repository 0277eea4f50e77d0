/* Local response normalisation across channels, with the exponent 3/4 of AlexNet and
 * GoogLeNet, in layouts whose pixels are vectors (layout_pixels). Compiled once for
 * each instruction set. */
#ifndef ONEDNN_LRN_KERNELS_H
#define ONEDNN_LRN_KERNELS_H

#include <stddef.h>

enum {
    LRN_MOST_CHANNELS = 2048, /* padding included */
    LRN_MOST_SIZE = 33,       /* channels of a neighbourhood */
    LRN_PIECE = 128,          /* points that one call computes at most */
};

typedef struct lrn_plan {
    int bf16, stream;     /* stream: streaming stores, to aligned addresses */
    size_t blocks, lanes; /* of a pixel: the channels are blocks of adjacent ones */
    size_t points;        /* of an image, all in each block */
    size_t reach;         /* neighbours on each side */
    float k, factor;      /* out = in / (k + factor * sum of squares)^(3/4) */
} lrn_plan;

typedef struct lrn_kernels {
    const char *name;
    size_t lanes;
    /* `at`: the first element of the first point. */
    void (*forward)(const lrn_plan *plan, size_t at, size_t points, const void *in,
                    void *out);
    void (*backward)(const lrn_plan *plan, size_t at, size_t points, const void *in,
                     const void *out_diff, void *in_diff);
} lrn_kernels;

extern const lrn_kernels lrn_base;
#ifdef __x86_64__
extern const lrn_kernels lrn_avx512, lrn_avx2;
#endif

#endif
