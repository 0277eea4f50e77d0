/* Convolutions and inner products of bfloat16 by AMX's tiles (amx_tiles.h): matrix
 * products whose left factor is read from the image as it lies in memory, or from a
 * padded copy in the cache.
 *
 * Images are channels last, [N][H][W][C] in bfloat16; weights and their gradients are
 * float32, [out][rows][columns][in / group]. Sums are float32. Results do not depend on
 * the number of threads: every sum has an order that follows from the shape.
 */
#ifndef ONEDNN_AMX_H
#define ONEDNN_AMX_H

#include <stddef.h>
#include <stdint.h>

#include "../shared/bounds.h"

typedef uint16_t bf16;

typedef struct amx_conv {
    size_t threads; /* at most; the space has room for so many */
    size_t batch, group;
    size_t in_channels, in[2]; /* height and width */
    size_t out_channels, out[2];
    size_t kernel[2], stride, pad[2]; /* one stride for rows and columns */
} amx_conv;

/* Functions compiled once for AMX and once for its emulation. `space`: space_bytes(),
 * aligned to 64, whose contents are not needed afterwards. `limit`: the fused
 * activation. `bias` and its gradient may be NULL. An inner product is a convolution
 * whose window is the image: in = kernel = {1, 1}, in_channels = features. */
typedef struct amx_kernels {
    const char *name;
    size_t (*space_bytes)(const amx_conv *conv, int training);
    void (*forward)(const amx_conv *conv, const bf16 *in, const float *weights,
                    const float *bias, const bounds *limit, bf16 *out, void *space);
    /* `add`: to what is in in_diff; the sum is rounded once. */
    void (*backward_data)(const amx_conv *conv, const bf16 *out_diff,
                          const float *weights, int add, bf16 *in_diff, void *space);
    void (*backward_weights)(const amx_conv *conv, const bf16 *in, const bf16 *out_diff,
                             float *weights_diff, float *bias_diff, void *space);
} amx_kernels;

extern const amx_kernels amx_emulated;
#ifdef __x86_64__
extern const amx_kernels amx_tiles;
#endif

#endif
