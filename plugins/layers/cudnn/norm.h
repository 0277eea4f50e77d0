/* CUDA kernels of batch_norm, on a matrix of rows (positions) x channels, channels
 * last. */
#ifndef DLCORE_CUDNN_NORM_H
#define DLCORE_CUDNN_NORM_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include <dlcore/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct norm_job {
    int dtype; /* dlc_dtype: float32, bfloat16 or half */
    int64_t rows, channels;
    float epsilon, momentum;
    float low, high, slope; /* of a fused activation (bounds.h) */
    int bounded;            /* 1: there is an activation */
    int by_batch; /* backward: mean and variance are the batch's, so their gradients
                     count */

    const void *x;
    const void *other; /* added after normalizing, or NULL */
    void *y;
    const float *scale, *bias; /* NULL: 1 and 0 */
    /* Mean and 1 / deviation of the batch, kept for backward. `inverse` NULL: use the
     * running averages. */
    float *mean, *inverse;
    /* Sums of x and of its squares, or NULL: norm_statistics computes them. */
    const float *sums, *squares;
    float *running_mean, *running_variance;

    /* A byte for each pack of values that a thread handles, with a bit for each: 1
     * where the activation passes them on. Forward writes it unless it is NULL. */
    uint8_t *mask;

    void *dy, *dx;    /* dx may be NULL */
    void *other_diff; /* gradient of `other`; may be dy; NULL: nothing was added */
    float *diff_scale, *diff_bias; /* NULL: not trained */

    /* Statistics over the samples of several ranks: the blocks of all of them, as
     * moments.h says, and how they are combined. NULL: of one rank. */
    double *blocks;
    const dlc_merge *merges;
    int rank, ranks;
    double *samples; /* of all ranks, per channel; kept for backward */
} norm_job;

/* Bytes of scratch memory that norm_statistics and norm_backward need, and of the
 * blocks of `ranks` ranks. */
size_t norm_scratch(const norm_job *job);
size_t norm_block_bytes(const norm_job *job, int ranks);
size_t norm_mask_bytes(const norm_job *job);
/* Computes mean and inverse of x and updates the running averages. If sums are given, x
 * is not read, and the variance is the difference of two float32 numbers, of which the
 * larger is 1 + mean^2 / variance times the result. Its relative error is about that
 * factor times 1e-7 times the number of roundings on the way to a sum (about ten).
 * Without sums the factor is near 1 whatever the mean is. */
cudaError_t norm_statistics(const norm_job *job, void *scratch, cudaStream_t stream);
/* With several ranks norm_statistics fills in this rank's block alone; once all blocks
 * are there, this does the rest. */
cudaError_t norm_merge_statistics(const norm_job *job, cudaStream_t stream);
/* Fills in a block, of `kinds` numbers per channel, of a rank without samples. */
cudaError_t norm_clear_block(const norm_job *job, int kinds, cudaStream_t stream);
/* y = bounds((x - mean) * inverse * scale + bias + other) */
cudaError_t norm_apply(const norm_job *job, cudaStream_t stream);
/* Computes the gradients whose pointers are set. With `other_diff` and an activation,
 * the mask tells where the activation was bounded; otherwise that is recomputed from x.
 */
cudaError_t norm_backward(const norm_job *job, void *scratch, cudaStream_t stream);
/* With several ranks norm_backward computes all but dx, and this rank's block of sums;
 * once all blocks are there, this computes dx. */
cudaError_t norm_merge_backward(const norm_job *job, void *scratch,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
