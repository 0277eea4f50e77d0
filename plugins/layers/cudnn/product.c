/* Describes a product to cuBLASLt, asks it for an algorithm, and runs it. */
#include "product.h"

#include <string.h>

/* Partial sums are added in a separate pass, in float32 and in a fixed order: of the
 * reduction schemes this is the only deterministic one. */
enum { MOST_SCRATCH = 32 << 20, ALIGNMENT = 64 };

static cudaDataType_t type_of(dlc_dtype dtype) {
    if (dtype == DLC_BF16)
        return CUDA_R_16BF;
    return dtype == DLC_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasStatus_t set(cublasLtMatmulDesc_t desc,
                          cublasLtMatmulDescAttributes_t attribute, const void *value,
                          size_t bytes) {
    return blas.MatmulDescSetAttribute(desc, attribute, value, bytes);
}

static cublasStatus_t set_bias(const product *p, const float *bias) {
    return set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static cublasStatus_t describe_product(product *p) {
    const product_shape *s = &p->shape;
    int tf32 = s->dtype == DLC_F32 && (p->net->math & DLC_MATH_TF32);
    const cublasOperation_t transpose_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            transpose_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = s->bias ? (s->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                           : CUBLASLT_EPILOGUE_BIAS)
                                                : (s->relu ? CUBLASLT_EPILOGUE_RELU
                                                           : CUBLASLT_EPILOGUE_DEFAULT);
    cublasStatus_t st = blas.MatmulDescCreate(
        &p->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a,
                 sizeof transpose_a);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b,
                 sizeof transpose_b);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (st == CUBLAS_STATUS_SUCCESS &&
        s->bias) /* the heuristics ask for its alignment */
        st = set_bias(p, (const float *)(uintptr_t)ALIGNMENT);
    return st;
}

static cublasStatus_t describe_matrix(cublasLtMatrixLayout_t *out, dlc_dtype dtype,
                                      int64_t rows, int64_t columns, int transposed) {
    int64_t height = transposed ? columns : rows, width = transposed ? rows : columns;
    return blas.MatrixLayoutCreate(out, type_of(dtype), (uint64_t)height,
                                   (uint64_t)width, height);
}

static cublasStatus_t describe_matrices(product *p) {
    const product_shape *s = &p->shape;
    cublasStatus_t st = describe_matrix(&p->a, s->dtype, s->rows, s->depth,
                                        s->transpose_a);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = describe_matrix(&p->b, s->dtype, s->depth, s->columns, s->transpose_b);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = describe_matrix(&p->d, s->out_dtype, s->rows, s->columns, 0);
    return st;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference) {
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t most = MOST_SCRATCH;
    const uint32_t apart = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, bytes = ALIGNMENT;
    cublasStatus_t st = blas.MatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = blas.MatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &apart,
            sizeof apart);
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++)
        if (st == CUBLAS_STATUS_SUCCESS)
            st = blas.MatmulPreferenceSetAttribute(preference, aligned[i], &bytes,
                                                   sizeof bytes);
    return st;
}

static cublasStatus_t choose(product *p) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    cublasStatus_t st = blas.MatmulPreferenceCreate(&preference);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = prefer(preference);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = blas.MatmulAlgoGetHeuristic(p->net->blas, p->desc, p->a, p->b, p->d, p->d,
                                         preference, 1, &best, &found);
    if (preference)
        (void)blas.MatmulPreferenceDestroy(preference);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    if (!found)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    p->algorithm = best.algo;
    p->scratch_bytes = best.workspaceSize;
    return st;
}

dlc_status product_make(product *p, context *net, const char *layer, const char *what,
                        const product_shape *shape) {
    product_clear(p);
    struct cublasLtContext *handle = NULL;
    dlc_status status = context_blas(net, &handle);
    if (status != DLC_OK)
        return status;
    p->net = net;
    p->layer = layer;
    p->what = what;
    p->shape = *shape;
    cublasStatus_t st = describe_product(p);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = describe_matrices(p);
    if (st == CUBLAS_STATUS_SUCCESS && handle)
        st = choose(p);
    return check_blas(st, layer, what);
}

dlc_status product_run(const product *p, const void *a, const void *b,
                       const float *bias, int accumulate, void *d, void *scratch) {
    const float one = 1, zero = 0;
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;
    if (p->shape.bias)
        st = set_bias(p, bias);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = blas.Matmul(p->net->blas, p->desc, &one, a, p->a, b, p->b,
                         accumulate ? &one : &zero, d, p->d, d, p->d, &p->algorithm,
                         scratch, p->scratch_bytes, p->net->stream);
    return check_blas(st, p->layer, p->what);
}

void product_clear(product *p) {
    if (p->a)
        (void)blas.MatrixLayoutDestroy(p->a);
    if (p->b)
        (void)blas.MatrixLayoutDestroy(p->b);
    if (p->d)
        (void)blas.MatrixLayoutDestroy(p->d);
    if (p->desc)
        (void)blas.MatmulDescDestroy(p->desc);
    memset(p, 0, sizeof *p);
}
