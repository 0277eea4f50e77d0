/* Tensors from one layout and element type to another, on the GPU. */
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
    int last;         /* images, points, channels; else images, channels, points */
    int64_t channels; /* in memory; more than the tensor's are zeros */
} reorder_side;

typedef struct reorder_job {
    reorder_side from, to;
    int64_t images, channels, points;
} reorder_job;

cudaError_t reorder_launch(const reorder_job *job, const void *src, void *dst,
                           cudaStream_t stream);
/* `count` elements, one after the other. */
cudaError_t convert_launch(int from, const void *src, int to, void *dst, int64_t count,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
