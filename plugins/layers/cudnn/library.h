/* The functions of cuDNN and cuBLASLt, found at run time.
 *
 * Only the CUDA runtime is linked, so that the plugin can be loaded and inspected on
 * machines without a GPU. Loading it only checks that the libraries exist; they are
 * opened together with the first net. Only the device plugin starts CUDA. */
#ifndef DLCORE_CUDNN_LIBRARY_H
#define DLCORE_CUDNN_LIBRARY_H

#include <cublasLt.h>
#include <cudnn_graph.h>

#include <dlcore/plugin.h>

#define CUDNN_CALLS(X) \
    X(GetVersion) \
    X(GetErrorString) \
    X(GetLastErrorString) \
    X(Create) \
    X(Destroy) \
    X(SetStream) \
    X(BackendCreateDescriptor) \
    X(BackendDestroyDescriptor) \
    X(BackendSetAttribute) \
    X(BackendGetAttribute) \
    X(BackendFinalize) \
    X(BackendExecute)

#define BLAS_CALLS(X) \
    X(Create) \
    X(Destroy) \
    X(GetStatusString) \
    X(GetVersion) \
    X(Matmul) \
    X(MatmulDescCreate) \
    X(MatmulDescDestroy) \
    X(MatmulDescSetAttribute) \
    X(MatrixLayoutCreate) \
    X(MatrixLayoutDestroy) \
    X(MatmulPreferenceCreate) \
    X(MatmulPreferenceDestroy) \
    X(MatmulPreferenceSetAttribute) \
    X(MatmulAlgoGetHeuristic)

typedef struct cudnn_calls {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes none */
#define X(name) __typeof__(&cudnn##name) name;
    CUDNN_CALLS(X)
#undef X
} cudnn_calls;

typedef struct blas_calls {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes none */
#define X(name) __typeof__(&cublasLt##name) name;
    BLAS_CALLS(X)
#undef X
} blas_calls;

extern cudnn_calls cudnn;
extern blas_calls blas;

/* The file that describes a GPU that is not here (see cudnn.h), or NULL. */
const char *library_plan_for(void);
/* Checks that a net could be opened here. Opens nothing that starts CUDA. */
dlc_status library_find(void);
/* Opens the libraries. Required before any call of them; from any thread; cheap after
 * the first time. */
dlc_status library_open(void);

/* DLC_OK, or fails with "layer 'conv1': cuDNN cannot <what>: <reason>". `layer` may be
 * NULL. */
dlc_status check_cudnn(cudnnStatus_t st, const char *layer, const char *what);
dlc_status check_blas(cublasStatus_t st, const char *layer, const char *what);

#endif
