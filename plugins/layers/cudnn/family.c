/* The layer family "cudnn": opens and closes the context of a net with its cuDNN and
 * cuBLASLt handles. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cudnn.h"
#include "library.h"

/* ---- The GPU --------------------------------------------------------------------- */

enum { DESCRIPTION_MAX = 64 * 1024 };

/* Reads a whole file, without trailing blanks. */
static dlc_status read_text(const char *path, char **text) {
    FILE *file = fopen(path, "re");
    if (!file)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: %s; this file is named by DLCORE_CUDNN_PLAN_FOR", path,
                          strerror(errno));
    char *read = host->alloc(DESCRIPTION_MAX);
    size_t bytes = read ? fread(read, 1, DESCRIPTION_MAX - 1, file) : 0;
    (void)fclose(file);
    if (!read)
        return DLC_ERR_NOMEM;
    while (bytes && (read[bytes - 1] == '\n' || read[bytes - 1] == ' '))
        bytes--;
    read[bytes] = 0;
    *text = read;
    return DLC_OK;
}

/* Takes the value of "deviceName" as the name of the GPU. */
static void name_described(context *net) {
    const char *key = "\"deviceName\":\"", *at = strstr(net->description, key);
    const char *from = at ? at + strlen(key) : "a described GPU";
    (void)snprintf(net->gpu, sizeof net->gpu, "%.*s", (int)strcspn(from, "\""), from);
}

static dlc_status describe_gpu(context *net, const char *path) {
    dlc_status status = read_text(path, &net->description);
    if (status != DLC_OK)
        return status;
    cudnnBackendDescriptor_t made = NULL;
    cudnnStatus_t st = cudnn.BackendCreateDescriptor(
        CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    net->described = made;
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendSetAttribute(
            made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            (int64_t)strlen(net->description) + 1, net->description);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendFinalize(made);
    name_described(net);
    return check_cudnn(st, NULL, "read the description of a GPU");
}

static dlc_status find_gpu(context *net, const dlc_family_args *args) {
    struct cudaDeviceProp properties;
    dlc_status status = dlc_cuda_device(args->device_ops, args->device, &net->device);
    if (status == DLC_OK && args->queue)
        status = dlc_cuda_stream(args->device_ops, args->device, args->queue,
                                 &net->stream);
    if (status != DLC_OK)
        return host->fail(status, "these layers need a device that runs CUDA");
    status = check_cuda(cudaSetDevice(net->device), NULL, "select the GPU");
    if (status == DLC_OK)
        status = check_cuda(cudaGetDeviceProperties(&properties, net->device), NULL,
                            "read the properties of the GPU");
    if (status == DLC_OK)
        (void)snprintf(net->gpu, sizeof net->gpu, "%s (%d.%d, %d, %zu)",
                       properties.name, properties.major, properties.minor,
                       properties.multiProcessorCount, properties.totalGlobalMem);
    return status;
}

/* ---- The context ------------------------------------------------------------- */

static void family_close(void *opaque) {
    context *net = opaque;
    if (!net)
        return;
    layouts_free(net);
    if (net->blas)
        (void)blas.Destroy(net->blas);
    if (net->cudnn)
        (void)cudnn.Destroy(net->cudnn);
    if (net->described)
        (void)cudnn.BackendDestroyDescriptor(net->described);
    host->free(net->description);
    host->free(net);
}

static dlc_status family_open(const dlc_family_args *args, void **opaque) {
    const char *described = library_plan_for();
    int infers_without_device = !args->device && !described;
    dlc_status status = infers_without_device ? DLC_OK : library_open();
    if (status != DLC_OK)
        return status;
    context *net = host->alloc(sizeof *net);
    if (!net)
        return DLC_ERR_NOMEM;
    net->device_ops = args->device_ops;
    net->device_at = args->device;
    net->phase = args->phase;
    net->precision = args->precision ? args->precision : DLC_F32;
    net->math = args->math;
    net->autotune = DLC_HAS(args, autotune) && args->autotune;
    if (!infers_without_device)
        status = described ? describe_gpu(net, described) : find_gpu(net, args);
    if (status != DLC_OK) {
        family_close(net);
        return status;
    }
    *opaque = net;
    return DLC_OK;
}

dlc_status context_cudnn(context *net, struct cudnnContext **handle) {
    if (!net->cudnn && !net->described) {
        struct cudnnContext *made = NULL;
        cudnnStatus_t st = cudnn.Create(&made);
        if (st == CUDNN_STATUS_SUCCESS && (st = cudnn.SetStream(made, net->stream)))
            (void)cudnn.Destroy(made);
        if (st != CUDNN_STATUS_SUCCESS)
            return check_cudnn(st, NULL, "start");
        net->cudnn = made;
    }
    *handle = net->cudnn;
    return DLC_OK;
}

dlc_status context_blas(context *net, struct cublasLtContext **handle) {
    if (!net->blas && !net->described) {
        struct cublasLtContext *made = NULL;
        dlc_status status = check_blas(blas.Create(&made), NULL, "start");
        if (status != DLC_OK)
            return status;
        net->blas = made;
    }
    *handle = net->blas;
    return DLC_OK;
}

const dlc_family cudnn_family = {
    .size = sizeof(dlc_family),
    .name = "cudnn",
    .open = family_open,
    .close = family_close,
    .same_layout = layouts_are_same,
    .reorder_create = layout_reorder_create,
    .reorder_run = layout_reorder_run,
    .reorder_destroy = layout_reorder_destroy,
    .infers_without_device = 1,
};
