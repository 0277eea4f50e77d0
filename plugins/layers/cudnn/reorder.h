/* Converts tensors between layouts and element types on the GPU. Enqueued on
 * `stream`. */
#ifndef DLCORE_CUDNN_REORDER_H
#define DLCORE_CUDNN_REORDER_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reorder_side {
    int dtype;        /* dlc_dtype: float32, bfloat16 or half */
    int last;         /* 1: images, points, channels; 0: images, channels, points */
    int64_t channels; /* in memory; those beyond the tensor's are zero */
} reorder_side;

typedef struct reorder_job {
    reorder_side from, to;
    int64_t images, channels, points;
} reorder_job;

cudaError_t reorder_launch(const reorder_job *job, const void *src, void *dst,
                           cudaStream_t stream);
/* Converts `count` elements between types. */
cudaError_t convert_launch(int from, const void *src, int to, void *dst, int64_t count,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
