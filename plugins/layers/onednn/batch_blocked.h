/* Convolution in the batch-blocked layout.
 *
 * In this layout a tensor is stored as [N / L][C][H][W][L]: a vector holds the same
 * element of L images. Every weight is then a broadcast, and no number of channels,
 * image size, stride or dilation leaves SIMD lanes empty, while layouts that put
 * channels into the vector round 20 of them up to 32. It requires a batch size that is
 * a multiple of L.
 *
 * oneDNN knows the layout by the tag Abcd16a (8a, 4a), so it reorders from and to it;
 * weights are plain, [out][in / group][height][width].
 *
 * Results do not depend on the number of threads: each output is computed by one
 * thread, in a fixed order.
 */
#ifndef ONEDNN_LANES_H
#define ONEDNN_LANES_H

#include <stddef.h>

typedef struct batch_blocked_kernels batch_blocked_kernels;

typedef struct batch_blocked_conv {
    size_t batch, group;
    size_t in_channels, in[2]; /* height and width */
    size_t out_channels, out[2];
    size_t kernel[2], stride[2], step[2] /* 1: no dilation */, pad[2];
    int relu; /* forward: negative results are multiplied by `slope` */
    float slope;

    /* Computed by batch_blocked_tables. */
    const batch_blocked_kernels *kernels;
    size_t padded[2], taps, positions; /* taps: of one group's filter */
    int *tap, *position;               /* their offsets in an image, in floats */
} batch_blocked_conv;

/* Functions compiled once for each instruction set. `space` is batch_blocked_space()
 * bytes: forward leaves the padded input there, which backward_weights reads;
 * backward_data needs a space of its own. `bias` and its gradient may be NULL. */
struct batch_blocked_kernels {
    const char *name;
    size_t lanes;
    void (*forward)(const batch_blocked_conv *conv, const float *in,
                    const float *weights, const float *bias, float *out, float *space);
    void (*backward_data)(const batch_blocked_conv *conv, const float *out_diff,
                          const float *weights, float *in_diff, float *space);
    void (*backward_weights)(const batch_blocked_conv *conv, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, const float *space);
};

extern const batch_blocked_kernels batch_blocked_base;
#ifdef __x86_64__
extern const batch_blocked_kernels batch_blocked_avx512, batch_blocked_avx2;
#endif

/* Are batch size and image suitable? */
int batch_blocked_possible(const batch_blocked_conv *conv,
                           const batch_blocked_kernels *kernels);
/* Is it likely faster than channels in the vector? Computed from the shapes alone, so
 * that a net computes the same numbers on every run. */
int batch_blocked_worthwhile(const batch_blocked_conv *conv);

/* Bytes of the tables; batch_blocked_tables then fills memory of that size. */
size_t batch_blocked_table_bytes(const batch_blocked_conv *conv);
void batch_blocked_tables(batch_blocked_conv *conv,
                          const batch_blocked_kernels *kernels, void *memory);
/* 0 if nothing is padded. */
size_t batch_blocked_space(const batch_blocked_conv *conv);

#endif
