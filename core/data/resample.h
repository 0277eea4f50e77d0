/* Resampling of images of bytes, with the filters and the antialiasing of Pillow: each
 * pixel is a weighted mean of the pixels under a filter, which is as wide as the pixel
 * if the image is made smaller. Separable: first along columns, then along rows, in
 * float32 with one rounding at the end. Results are the same on every CPU. Called by
 * the transforms that resize. */
#ifndef DLC_DATA_RESAMPLE_H
#define DLC_DATA_RESAMPLE_H

#include "data/transform.h"

typedef struct dlc_filter {
    const char *name;
    double support; /* in pixels of the larger of the two grids */
    double (*weight)(double distance);
} dlc_filter;

/* "bilinear", "bicubic", "area" or "nearest". */
const dlc_filter *dlc_filter_find(const char *name);

/* One axis of a resize: the interval `begin` .. `end` of the input, of which only
 * pixels inside are read, becomes `size` pixels; `first` .. `first` + `count` - 1 are
 * wanted. */
typedef struct dlc_resample_axis {
    double begin, end;
    int64_t size, first, count;
} dlc_resample_axis;

/* The bytes of memory that dlc_resample needs for an image of this width. */
size_t dlc_resample_bytes(const dlc_filter *filter, const dlc_image *from,
                          const dlc_resample_axis *x, const dlc_resample_axis *y);

/* Resamples `from`, interleaved bytes, to x.count x y.count pixels of the same format.
 * `memory` is aligned to 64 bytes. */
void dlc_resample(const dlc_filter *filter, const dlc_image *from,
                  const dlc_resample_axis *x, const dlc_resample_axis *y, void *memory,
                  const dlc_image *to) __attribute__((nonnull));

#endif
