/* Convolution of each channel with a filter of its own (depthwise), in float32 and
 * bfloat16. It multiplies few times for each number it reads, so it has to run at the
 * speed of memory.
 *
 * Tensors are stored as [N][C / side][H][W][side]: channels last if `side` is the
 * number of channels, else oneDNN's blocks of channels. Weights are plain float32,
 * [C][height][width]; with bfloat16 tensors they are rounded to bfloat16 first. Sums
 * are float32.
 *
 * Results do not depend on the number of threads: each number is computed by one
 * thread, in a fixed order.
 */
#ifndef ONEDNN_DEPTHWISE_H
#define ONEDNN_DEPTHWISE_H

#include <stddef.h>

#include "../shared/bounds.h"

/* The largest window and stride that the kernels have room for. */
enum { DEPTHWISE_TAPS = 11, DEPTHWISE_STRIDE = 4 };

typedef struct depthwise_conv {
    int bf16;
    size_t batch, channels, side;        /* `side` divides `channels` */
    size_t in[2], out[2];                /* height and width */
    size_t window[2], stride[2], pad[2]; /* padding before the image */
} depthwise_conv;

/* Functions compiled once for each instruction set. `space`: space_bytes(), aligned to
 * 64, whose contents are not needed afterwards. `limit`: the fused activation. `bias`
 * and its gradient may be NULL. */
typedef struct depthwise_kernels {
    const char *name;
    size_t (*space_bytes)(const depthwise_conv *conv, int training);
    void (*forward)(const depthwise_conv *conv, const void *in, const float *weights,
                    const float *bias, const bounds *limit, void *out, float *space);
    void (*backward_data)(const depthwise_conv *conv, const void *out_diff,
                          const float *weights, void *in_diff, float *space);
    void (*backward_weights)(const depthwise_conv *conv, const void *in,
                             const void *out_diff, float *weights_diff,
                             float *bias_diff, float *space);
} depthwise_kernels;

extern const depthwise_kernels depthwise_base;
#ifdef __x86_64__
extern const depthwise_kernels depthwise_avx512, depthwise_avx2;
#endif

#endif
