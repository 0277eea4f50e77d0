/* The kernels of batch_norm, on a matrix of rows (places) x channels. */
#ifndef DLCORE_CUDNN_NORM_H
#define DLCORE_CUDNN_NORM_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct norm_job {
    int dtype; /* dlc_dtype: float32, bfloat16 or half */
    int64_t rows, channels;
    float epsilon, momentum;
    float low, high, slope; /* of an activation behind it (bounds.h) ... */
    int bounded;            /* ... if there is one */
    int by_batch;           /* backward: mean and variance moved with the inputs */

    const void *x;
    const void *other; /* what is added behind it, or NULL */
    void *y;
    const float *scale, *bias; /* NULL: 1 and 0 */
    /* Of the batch, kept for backward; `inverse` NULL: of the running averages, whose
     * variance is told instead. */
    float *mean, *inverse;
    /* Sums of x and of its squares, or NULL: to be found out. */
    const float *sums, *squares;
    float *running_mean, *running_variance;

    void *dy, *dx;    /* dx may be NULL */
    void *other_diff; /* the gradient of what was added; may be dy; NULL: no join */
    float *diff_scale, *diff_bias; /* NULL: not trained */
} norm_job;

/* Bytes of scratch for norm_statistics and norm_back. */
size_t norm_scratch(const norm_job *job);
/* mean and inverse of x, and the running averages take them in. With sums x is not
 * read, and the variance is the difference of two numbers of which the larger is 1 +
 * mean^2 / variance times what is left: they are rounded to float32, so its relative
 * error is about that factor times 1e-7 times how often an engine rounds on the way to
 * a sum (some ten times). Without, the factor is near 1 whatever the mean is. */
cudaError_t norm_statistics(const norm_job *job, void *scratch, cudaStream_t stream);
/* y = bounds((x - mean) * inverse * scale + bias + other) */
cudaError_t norm_apply(const norm_job *job, cudaStream_t stream);
/* The gradients that are asked for. With a join and an activation y tells where that
 * was bounded; else it is worked out again from x. */
cudaError_t norm_back(const norm_job *job, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
