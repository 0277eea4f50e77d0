/* Kernels around a matrix product: adding a bias and applying an activation after it,
 * and the backward passes of both. On a matrix of rows (positions) x channels. */
#ifndef DLCORE_CUDNN_BIAS_H
#define DLCORE_CUDNN_BIAS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bias_job {
    int dtype; /* dlc_dtype: float32, bfloat16 or half */
    int64_t rows, channels;
    float low, high, slope; /* of an activation (bounds.h), */
    int bounded;            /* if there is one */
} bias_job;

/* y = bounds(y + bias), in place; bias may be NULL. */
cudaError_t bias_add(const bias_job *job, const float *bias, void *y,
                     cudaStream_t stream);
/* Bytes of bias_back's scratch. */
size_t bias_scratch(const bias_job *job);
/* dy *= the slope of bounds at y, in place; diff_bias = the sums of that over the rows,
 * unless it is NULL. */
cudaError_t bias_backward(const bias_job *job, const void *y, void *dy,
                          float *diff_bias, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
