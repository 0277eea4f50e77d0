/* The kernels of update rules. A solver's plugin brings them as an image, which is
 * loaded when the device first runs the rule, and stays loaded while it is open. */
#include "gpu.h"

struct rule_kernel {
    rule_kernel *next;
    const void *image; /* of the rule, which may be one of several */
    const char *name;
    cudaLibrary_t library; /* owned */
    cudaKernel_t kernel;
};

/* Asking for an attribute loads the kernel, which must not happen for the first time
 * while a stream is captured: a launch could need memory then. */
static cudaError_t load_image(const dlc_rule *rule, rule_kernel *made) {
    struct cudaFuncAttributes unused;
    cudaError_t error = cudaLibraryLoadData(&made->library, rule->image, NULL, NULL, 0,
                                            NULL, NULL, 0);
    if (error == cudaSuccess)
        error = cudaLibraryGetKernel(&made->kernel, made->library, rule->kernel);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&unused, (const void *)made->kernel);
    return error;
}

/* Loads the image in a mode in which a capture of this thread allows it. */
static cudaError_t load_during_capture(const dlc_rule *rule, rule_kernel *made) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess)
        return error;
    error = load_image(rule, made);
    cudaError_t restored = cudaThreadExchangeStreamCaptureMode(&mode);
    return error == cudaSuccess ? restored : error;
}

static void free_rule(rule_kernel *rule) {
    if (rule->library)
        (void)cudaLibraryUnload(rule->library);
    host->free(rule);
}

static dlc_status load_rule(dlc_device *device, const dlc_rule *rule,
                            rule_kernel **loaded) {
    rule_kernel *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = (rule_kernel){.image = rule->image, .name = rule->kernel};
    dlc_status status = gpu_use(device);
    cudaError_t error = status == DLC_OK ? load_during_capture(rule, made)
                                         : cudaSuccess;
    if (error == cudaErrorNoKernelImageForDevice)
        status = host->fail(
            DLC_ERR_UNSUPPORTED,
            "the solver's rule %s was built without code for the GPU at "
            "%s: build its plugin for this architecture",
            rule->kernel, device->address);
    else if (error != cudaSuccess)
        status = gpu_failed(device, error, "loading the solver's rule %s",
                            rule->kernel);
    if (status != DLC_OK) {
        free_rule(made);
        return status;
    }
    *loaded = made;
    return DLC_OK;
}

dlc_status rules_find(dlc_device *device, const dlc_rule *rule, cudaKernel_t *kernel) {
    dlc_status status = DLC_OK;
    if (!rule->image || !rule->kernel)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the solver's rule %s was built without CUDA: build its "
                          "plugin where nvcc is installed, or train on CPUs",
                          rule->kernel ? rule->kernel : "");
    (void)pthread_mutex_lock(&device->rules_lock);
    rule_kernel *found = device->rules;
    while (found && (found->image != rule->image || found->name != rule->kernel))
        found = found->next;
    if (!found) {
        status = load_rule(device, rule, &found);
        if (status == DLC_OK) {
            found->next = device->rules;
            device->rules = found;
        }
    }
    if (status == DLC_OK)
        *kernel = found->kernel;
    (void)pthread_mutex_unlock(&device->rules_lock);
    return status;
}

void rules_close(dlc_device *device) {
    while (device->rules) {
        rule_kernel *next = device->rules->next;
        free_rule(device->rules);
        device->rules = next;
    }
}
