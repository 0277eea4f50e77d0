/* A matrix product by cuBLASLt, prepared once and run in each pass. */
#ifndef DLCORE_CUDNN_PRODUCT_H
#define DLCORE_CUDNN_PRODUCT_H

#include "cudnn.h"
#include "library.h"

/* D (rows x columns) = op(A) (rows x depth) op(B) (depth x columns); column-major and
 * dense; op transposes where asked. */
typedef struct product_shape {
    int64_t rows, columns, depth;
    int transpose_a, transpose_b;
    dlc_dtype dtype, out_dtype; /* of A and B; of D */
    int bias, relu;             /* float32 only: add a column, then max(0, x) */
} product_shape;

typedef struct product {
    context *net;
    const char *layer, *what;
    product_shape shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t scratch_bytes;
} product;

/* With a described GPU no algorithm is chosen, and the product cannot be run.
 * `accumulate`: add to D instead of overwriting it. */
dlc_status product_make(product *p, context *net, const char *layer, const char *what,
                        const product_shape *shape);
dlc_status product_run(const product *p, const void *a, const void *b,
                       const float *bias, int accumulate, void *d, void *scratch);
void product_clear(product *p); /* a zeroed product is allowed */

#endif
