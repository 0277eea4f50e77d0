/* Launchers of our own kernels: each enqueues one pass of a layer on a stream. The
 * header of the body explains what the kernel does and what its arguments mean.
 * Arguments are copied. */
#ifndef DLCORE_CUDNN_KERNELS_H
#define DLCORE_CUDNN_KERNELS_H

#include <cuda_runtime_api.h>

#include "../../shared/pair_loss.h"
#include "activation_body.h"
#include "concat_body.h"
#include "dropout_body.h"
#include "eltwise_body.h"
#include "labels_body.h"
#include "lrn_body.h"
#include "pooling_body.h"
#include "scale_body.h"
#include "softmax_body.h"
#include "upsample_body.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t activation_forward_run(const activation_args *a, cudaStream_t stream);
cudaError_t activation_backward_run(const activation_args *a, cudaStream_t stream);

cudaError_t eltwise_forward_run(const eltwise_args *a, cudaStream_t stream);
cudaError_t eltwise_backward_run(const eltwise_args *a, cudaStream_t stream);

/* Require pooling_ready(). */
cudaError_t pooling_forward_run(const pooling_args *p, cudaStream_t stream);
cudaError_t pooling_backward_run(const pooling_args *p, cudaStream_t stream);

/* Require upsample_ready(). */
cudaError_t upsample_forward_run(const upsample_args *u, cudaStream_t stream);
cudaError_t upsample_backward_run(const upsample_args *u, cudaStream_t stream);

/* Require lrn_ready(). */
cudaError_t lrn_forward_run(const lrn_args *l, cudaStream_t stream);
cudaError_t lrn_backward_run(const lrn_args *l, cudaStream_t stream);

cudaError_t softmax_forward_run(const softmax_args *s, cudaStream_t stream);
cudaError_t softmax_backward_run(const softmax_args *s, cudaStream_t stream);

cudaError_t loss_forward_run(const labels_args *l, cudaStream_t stream);
cudaError_t loss_backward_run(const labels_args *l, cudaStream_t stream);
cudaError_t accuracy_run(const labels_args *l, cudaStream_t stream);

cudaError_t pair_loss_forward_run(const pair_loss_args *l, cudaStream_t stream);
cudaError_t pair_loss_backward_run(const pair_loss_args *l, cudaStream_t stream);

cudaError_t dropout_run(const dropout_args *d, cudaStream_t stream);

/* Scales from -> to; `bias` is NULL in backward. */
cudaError_t scale_run(const scale_args *s, cudaStream_t stream);
/* The gradients of factor and bias. */
cudaError_t scale_sums_run(const scale_args *s, cudaStream_t stream);

/* Requires concat_ready(). */
cudaError_t concat_run(const concat_args *c, int backward, cudaStream_t stream);

/* The ranges must not overlap. */
cudaError_t copy_run(void *to, const void *from, size_t bytes, cudaStream_t stream);

/* Allocates a zeroed report in memory that host and GPU access at the same address. */
cudaError_t report_open(label_report **report);
void report_close(label_report *report); /* NULL allowed */

#ifdef __cplusplus
}
#endif
#endif
