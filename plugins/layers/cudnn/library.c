/* Finds the libraries and their functions with dlopen and dlsym, and turns their error
 * codes into dlcore statuses. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn.h"
#include "library.h"

cudnn_calls cudnn;
blas_calls blas;

static char problem[512]; /* why opening failed; "": it did not */

typedef struct named_call {
    const char *name;
    void *at; /* address of the function pointer */
} named_call;

static const named_call cudnn_names[] = {
#define X(call) {"cudnn" #call, &cudnn.call},
    CUDNN_CALLS(X)
#undef X
};

static const named_call blas_names[] = {
#define X(call) {"cublasLt" #call, &blas.call},
    BLAS_CALLS(X)
#undef X
};

/* Searches the dynamic linker's paths, then the default folder of the CUDA toolkit. */
static void *open_library(const char *soname) {
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        char path[128];
        (void)snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", soname);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    return library;
}

const char *library_plan_for(void) {
    return secure_getenv("DLCORE_CUDNN_PLAN_FOR");
}

dlc_status library_find(void) {
    void *driver = library_plan_for() ? NULL
                                      : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver && !library_plan_for())
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "no CUDA driver (libcuda.so.1) is installed");
    if (driver)
        (void)dlclose(driver);
    void *library = open_library("libcudnn.so.9");
    if (!library)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "cuDNN 9 (libcudnn.so.9) was not found; install it, or "
                          "add its folder to LD_LIBRARY_PATH");
    (void)dlclose(library);
    return DLC_OK;
}

static int find_calls(void *library, const char *soname, const char *need,
                      const named_call *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, calls[i].name);
        if (!found) {
            (void)snprintf(problem, sizeof problem, "%s has no %s: %s is needed",
                           soname, calls[i].name, need);
            return 0;
        }
        memcpy(calls[i].at, &found, sizeof found);
    }
    return 1;
}

static void open_once(void) {
    enum { OLDEST = 90800 }; /* the first that plans for a described GPU */
    const char *soname = "libcudnn.so.9";
    void *library = open_library(soname);
    if (!library) {
        (void)snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    if (!find_calls(library, soname, "cuDNN 9.8 or later", cudnn_names,
                    sizeof cudnn_names / sizeof *cudnn_names))
        return;
    if (cudnn.GetVersion() < OLDEST) {
        (void)snprintf(problem, sizeof problem,
                       "cuDNN %zu is installed, and 9.8 or later (%d) is needed",
                       cudnn.GetVersion(), OLDEST);
        return;
    }
    /* The major version that belongs to the CUDA runtime this was built with. */
    soname = CUDART_VERSION >= 13000 ? "libcublasLt.so.13" : "libcublasLt.so.12";
    library = open_library(soname);
    if (!library) {
        (void)snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    (void)find_calls(library, soname, "cuBLAS 12 or later", blas_names,
                     sizeof blas_names / sizeof *blas_names);
}

dlc_status library_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, open_once);
    if (problem[0])
        return host->fail(DLC_ERR_UNAVAILABLE, "cuDNN cannot be used here: %s",
                          problem);
    return DLC_OK;
}

/* ---- Errors --------------------------------------------------------------------- */

static dlc_status failed(dlc_status status, const char *library, const char *layer,
                         const char *what, const char *reason) {
    if (layer)
        return host->fail(status, "layer '%s': %s cannot %s: %s", layer, library, what,
                          reason);
    return host->fail(status, "%s cannot %s: %s", library, what, reason);
}

dlc_status check_cuda(cudaError_t error, const char *layer, const char *what) {
    if (error == cudaSuccess)
        return DLC_OK;
    dlc_status status = DLC_ERR_DEVICE;
    if (error == cudaErrorMemoryAllocation)
        status = DLC_ERR_NOMEM;
    else if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice)
        status = DLC_ERR_UNAVAILABLE;
    else if (error == cudaErrorInvalidValue || error == cudaErrorInvalidConfiguration)
        status = DLC_ERR_INTERNAL;
    return failed(status, "CUDA", layer, what, cudaGetErrorString(error));
}

static dlc_status status_of(cudnnStatus_t st) {
    enum { CLASS = 1000 };
    switch ((int)st / CLASS) {
    case 1:
        return DLC_ERR_UNAVAILABLE; /* not initialized, or mismatched versions */
    case 2:
        return DLC_ERR_INTERNAL; /* bad parameter */
    case 3:
        return DLC_ERR_UNSUPPORTED;
    default:
        return DLC_ERR_DEVICE;
    }
}

dlc_status check_cudnn(cudnnStatus_t st, const char *layer, const char *what) {
    if (st == CUDNN_STATUS_SUCCESS)
        return DLC_OK;
    char text[384] = "", reason[512];
    cudnn.GetLastErrorString(text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    (void)snprintf(reason, sizeof reason, "%s%s%s", cudnn.GetErrorString(st),
                   text[0] ? ": " : "", text);
    return failed(status_of(st), "cuDNN", layer, what, reason);
}

dlc_status check_blas(cublasStatus_t st, const char *layer, const char *what) {
    if (st == CUBLAS_STATUS_SUCCESS)
        return DLC_OK;
    dlc_status status = DLC_ERR_DEVICE;
    if (st == CUBLAS_STATUS_NOT_SUPPORTED)
        status = DLC_ERR_UNSUPPORTED;
    else if (st == CUBLAS_STATUS_ALLOC_FAILED)
        status = DLC_ERR_NOMEM;
    else if (st == CUBLAS_STATUS_INVALID_VALUE)
        status = DLC_ERR_INTERNAL;
    else if (st == CUBLAS_STATUS_NOT_INITIALIZED)
        status = DLC_ERR_UNAVAILABLE;
    return failed(status, "cuBLASLt", layer, what, blas.GetStatusString(st));
}
