/* The CUDA kernels as C sees them: each launches work on a stream and returns the
 * runtime's error. n counts elements and is more than 0; pointers are device memory. */
#ifndef KERNELS_H
#define KERNELS_H

#include <cuda_runtime_api.h>

#include "bodies.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where to launch: a stream, and the number of multiprocessors. */
typedef struct kernel_launch {
    cudaStream_t stream;
    int units;
} kernel_launch;

enum {
    KERNEL_SOURCES = 64 /* most sources of a sum, and most destinations */
};

cudaError_t kernel_scale(kernel_launch at, size_t n, float alpha, float *x);
cudaError_t kernel_add(kernel_launch at, size_t n, const float *x, float *y);
cudaError_t kernel_axpy(kernel_launch at, size_t n, float alpha, const float *x,
                        float *y);
cudaError_t kernel_add_bf16(kernel_launch at, size_t n, const uint16_t *x, uint16_t *y);
cudaError_t kernel_add_f16(kernel_launch at, size_t n, const uint16_t *x, uint16_t *y);
/* Returns cudaErrorNotSupported for a pair of types without a conversion. */
cudaError_t kernel_convert(kernel_launch at, size_t n, dlc_dtype from, const void *src,
                           dlc_dtype to, void *dst);
cudaError_t kernel_sum_to(kernel_launch at, size_t n, const float *const *sources,
                          int count, float *const *dsts, int dst_count);
cudaError_t kernel_square_sums(kernel_launch at, size_t n, const float *x,
                               double *sums);
cudaError_t kernel_total(kernel_launch at, size_t n, const double *sums,
                         double *total); /* n may be 0 */
cudaError_t kernel_add_mean(kernel_launch at, float alpha, const float *x, float *y);
/* Converts bytes to floats: see dlc_device_ops.normalize. */
typedef struct kernel_images {
    const uint8_t *src;
    const float *mean, *scale;
    float *dst;
    size_t plane, channels;
} kernel_images;

cudaError_t kernel_normalize(kernel_launch at, size_t n, const kernel_images *images);
cudaError_t kernel_update_loss_scale(kernel_launch at, const double *square,
                                     int32_t growth_interval, dlc_loss_scale *scale);

#ifdef __cplusplus
}
#endif
#endif
