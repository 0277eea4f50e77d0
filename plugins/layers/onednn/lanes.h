/* Convolution with the batch in the vector's lanes.
 *
 * In the lanes layout a tensor lies as [N / L][C][H][W][L]: a vector holds the same
 * element of L images. Every weight is then a broadcast, and no number of channels,
 * no image size, stride or dilation leaves a lane empty, where layouts that put
 * channels into the vector round 20 of them up to 32. What it wants is a batch that
 * is a multiple of L.
 *
 * To oneDNN the layout is the tag Abcd16a (8a, 4a), so that it reorders from and to
 * it; weights are plain, [out][in / group][height][width].
 *
 * Results do not depend on the number of threads: each output is one thread's, which
 * sums it in one fixed order. */
#ifndef ONEDNN_LANES_H
#define ONEDNN_LANES_H

#include <stddef.h>

typedef struct lanes_kernels lanes_kernels;

typedef struct lanes_conv {
    size_t batch, group;
    size_t in_channels, in[2]; /* height and width */
    size_t out_channels, out[2];
    size_t kernel[2], stride[2], step[2] /* 1: no dilation */, pad[2];
    int relu; /* forward: negative results times `slope` */
    float slope;

    /* Filled in by lanes_conv_tables. */
    const lanes_kernels *kernels;
    size_t padded[2], taps, positions; /* taps: of one group's filter */
    int *tap, *position;               /* their offsets in an image, in floats */
} lanes_conv;

/* What is compiled once for each instruction set. `space` is lanes_conv_space() bytes:
 * forward leaves the padded input there, which backward_weights reads; backward_data
 * wants such a space of its own. `bias` and its gradient may be NULL. */
struct lanes_kernels {
    const char *name;
    size_t lanes;
    void (*forward)(const lanes_conv *conv, const float *in, const float *weights,
                    const float *bias, float *out, float *space);
    void (*backward_data)(const lanes_conv *conv, const float *out_diff,
                          const float *weights, float *in_diff, float *space);
    void (*backward_weights)(const lanes_conv *conv, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, const float *space);
};

extern const lanes_kernels lanes_base;
#ifdef __x86_64__
extern const lanes_kernels lanes_avx512, lanes_avx2;
#endif

/* Do batch and image fit? */
int lanes_possible(const lanes_conv *conv, const lanes_kernels *kernels);
/* Is it likely faster than channels in the vector? By arithmetic alone, so that a
 * net computes the same numbers on every run. */
int lanes_worthwhile(const lanes_conv *conv);

/* Bytes for the tables; then the tables in memory of that many bytes. */
size_t lanes_conv_table_bytes(const lanes_conv *conv);
void lanes_conv_tables(lanes_conv *conv, const lanes_kernels *kernels, void *memory);
/* 0 where nothing is padded. */
size_t lanes_conv_space(const lanes_conv *conv);

#endif
