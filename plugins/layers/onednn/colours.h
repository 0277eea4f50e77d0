/* The gradient of the filters of a convolution over images of a few colours.
 *
 * Library code for few channels fills SIMD lanes with filters but loads each pixel for
 * few products. Here the taps of some pixels are first copied side by side, so that all
 * of them multiply gradients that are in registers, whatever the window.
 *
 * Images are channels last. Sums do not depend on the number of threads: a fixed number
 * of parts is added in order.
 */
#ifndef ONEDNN_COLOURS_H
#define ONEDNN_COLOURS_H

#include <stddef.h>

/* Most channels of the image. */
enum { COLOURS = 4 };

typedef struct colours_conv {
    size_t threads; /* at most; the space has room for so many */
    size_t images, channels, filters;
    size_t in[2], out[2], kernel[2], stride[2], pad[2]; /* height and width */
    size_t block; /* filters that are adjacent in a pixel of the gradient */
} colours_conv;

/* Functions compiled once for each instruction set. The gradient of the weights is
 * plain; bias_diff may be NULL. `space` is space_bytes() bytes. */
typedef struct colours_kernels {
    const char *name;
    size_t lanes, filters; /* blocks are a multiple of these, filters of those */
    size_t (*space_bytes)(const colours_conv *conv);
    void (*backward_weights)(const colours_conv *conv, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, float *space);
} colours_kernels;

extern const colours_kernels colours_base;
#ifdef __x86_64__
extern const colours_kernels colours_avx512, colours_avx2;
#endif

#endif
