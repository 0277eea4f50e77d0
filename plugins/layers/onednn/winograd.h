/* Convolution of 3 x 3 and 5 x 5 windows, stride 1, by Winograd's transform (Lavin and
 * Gray 2016): F(4x4, 3x3) and F(2x2, 5x5), whose tiles of the image have 6 x 6 points
 * both. An image's tile and a filter are carried to 36 points, where convolution is one
 * product a point, and summing over channels makes 36 products of matrices: 4 and 2.8
 * times fewer multiplications, rounding a little more than the sums as they stand.
 *
 * Tensors lie as [N][C / L][H][W][L], oneDNN's aBcd16b (8b, 4b), and groups in it are
 * ranges of blocks; weights are plain, [out][in / group][side][side].
 *
 * Results do not depend on the number of threads: each number is one thread's, which
 * sums it in one fixed order. */
#ifndef ONEDNN_WINOGRAD_H
#define ONEDNN_WINOGRAD_H

#include <stddef.h>

#include "../shared/bounds.h"

typedef struct winograd_conv {
    size_t threads; /* at most; the space is for so many */
    size_t batch, group;
    size_t in_channels, in[2]; /* height and width */
    size_t out_channels, out[2];
    size_t side, pad[2]; /* of the window, 3 or 5; what lies before the image */
} winograd_conv;

/* What is compiled once for each instruction set. `space`: space_bytes() for each pass,
 * whose contents nobody reads afterwards; aligned to 64. `limit`: the activation
 * taken over. `bias` and its gradient may be NULL. */
typedef struct winograd_kernels {
    const char *name;
    size_t lanes;
    size_t (*space_bytes)(const winograd_conv *conv, int training);
    void (*forward)(const winograd_conv *conv, const float *in, const float *weights,
                    const float *bias, const bounds *limit, float *out, float *space);
    void (*backward_data)(const winograd_conv *conv, const float *out_diff,
                          const float *weights, float *in_diff, float *space);
    void (*backward_weights)(const winograd_conv *conv, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, float *space);
} winograd_kernels;

extern const winograd_kernels winograd_base;
#ifdef __x86_64__
extern const winograd_kernels winograd_avx512, winograd_avx2;
#endif

#endif
