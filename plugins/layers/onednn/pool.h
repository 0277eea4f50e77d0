/* Pooling in layouts whose pixels are vectors: channels last, blocks of channels or of
 * images. The kernels are compiled once for each instruction set and compute one row of
 * an image at a time, so that every number has one writer and a fixed order. */
#ifndef ONEDNN_POOL_H
#define ONEDNN_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Most taps of a window whose maximum is kept as one byte. */
enum { POOL_MOST_TAPS = 255 };

/* Along one axis. Of a window: the taps inside the image, the first of which is number
 * `tap`, and 1 / those that count for an average. Of a pixel: the windows that hold it;
 * it is tap number `tap` of the first, and `stride` less of each further one. */
typedef struct pool_span {
    size_t begin, count, tap;
    float share;
} pool_span;

typedef struct pool_plan {
    int bf16, average;
    size_t images, in[2], out[2];
    size_t lanes; /* elements of a pixel */
    size_t kernel[2], stride[2];
    const pool_span *window[2]; /* of each row and column of the output */
    const pool_span *cover[2];  /* of each row and column of the input */
} pool_plan;

/* What a call reads and writes. place: for each output, which tap the maximum is; NULL
 * in the test phase and for averages. stream: streaming stores, to aligned addresses.
 */
typedef struct pool_tensors {
    const void *from;
    void *to;
    uint8_t *place;
    int stream;
} pool_tensors;

/* `row` counts the rows of all images: of the output forward, of the input backward. */
typedef void pool_row_fn(const pool_plan *plan, const pool_tensors *t, size_t row);

typedef struct pool_kernels {
    const char *name;
    size_t lanes;
    pool_row_fn *forward, *backward;
} pool_kernels;

extern const pool_kernels pool_base;
#ifdef __x86_64__
extern const pool_kernels pool_avx512, pool_avx2;
#endif

#endif
