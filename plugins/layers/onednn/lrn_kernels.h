/* Local response normalisation across channels or within them, with the exponent 3/4 of
 * AlexNet, GoogLeNet and Caffe's nets for CIFAR-10, in layouts whose pixels are vectors
 * (layout_pixels). Compiled once for each instruction set. */
#ifndef ONEDNN_LRN_KERNELS_H
#define ONEDNN_LRN_KERNELS_H

#include <stddef.h>

enum {
    LRN_MOST_CHANNELS = 2048, /* padding included */
    LRN_MOST_SIZE = 33,       /* channels of a neighbourhood */
    LRN_PIECE = 128,          /* points that one call computes at most */
};

/* Within channels: a plane is the points of an image in one block. */
enum { LRN_MOST_PLANE = 256 << 10 /* bytes of a vector of it, margins included */ };

typedef struct lrn_plan {
    int bf16, stream;     /* stream: streaming stores, to aligned addresses */
    size_t blocks, lanes; /* of a pixel: the channels are blocks of adjacent ones */
    size_t points;        /* of an image, all in each block */
    size_t reach;         /* neighbours on each side */
    size_t rows, columns; /* within channels: of an image */
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

/* Within channels: of the planes `first` .. `end`. `space` is space_bytes() bytes. */
typedef struct lrn_plane_kernels {
    const char *name;
    size_t lanes;
    size_t (*plane_bytes)(const lrn_plan *plan); /* LRN_MOST_PLANE at most */
    size_t (*space_bytes)(const lrn_plan *plan);
    void (*forward)(const lrn_plan *plan, size_t first, size_t end, const void *in,
                    void *out, float *space);
    void (*backward)(const lrn_plan *plan, size_t first, size_t end, const void *in,
                     const void *out_diff, void *in_diff, float *space);
} lrn_plane_kernels;

extern const lrn_kernels lrn_base;
extern const lrn_plane_kernels lrn_plane_base;
#ifdef __x86_64__
extern const lrn_plane_kernels lrn_plane_avx512, lrn_plane_avx2;
extern const lrn_kernels lrn_avx512, lrn_avx2;
#endif

#endif
