/* Convolution of 3 x 3 and 5 x 5 windows, stride 1, by Winograd's transform (Lavin and
 * Gray 2016): F(4x4, 3x3) and F(2x2, 5x5), whose image tiles both have 6 x 6 points. An
 * image's tile and a filter are transformed to 36 points, where convolution is one
 * product per point, and summing over channels makes 36 matrix products: 4 and 2.8
 * times fewer multiplications, with slightly larger rounding errors than direct sums.
 *
 * Tensors are stored as [N][C / L][H][W][L], oneDNN's aBcd16b (8b, 4b), and groups are
 * ranges of blocks; weights are plain, [out][in / group][side][side].
 *
 * Results do not depend on the number of threads: each number is computed by one
 * thread, in a fixed order.
 */
#ifndef ONEDNN_WINOGRAD_H
#define ONEDNN_WINOGRAD_H

#include <stddef.h>

#include "../shared/bounds.h"

typedef struct winograd_conv {
    size_t threads; /* at most; the space has room for so many */
    size_t batch, group;
    size_t in_channels, in[2]; /* height and width */
    size_t out_channels, out[2];
    size_t side, pad[2]; /* of the window, 3 or 5; padding before the image */
} winograd_conv;

/* Functions compiled once for each instruction set. `space`: space_bytes() for each
 * pass, aligned to 64, whose contents are not needed afterwards. `limit`: the fused
 * activation. `bias` and its gradient may be NULL. */
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
