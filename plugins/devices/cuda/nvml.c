/* Loads NVIDIA's management library and resolves its calls. */
#include "nvml.h"

#include <string.h>

#include "machine.h"
#include "symbols.h"

static int find_calls(nvml_calls *n) {
    int all = FIND(n->library, "nvmlInit_v2", n->init) &&
              FIND(n->library, "nvmlShutdown", n->shutdown) &&
              FIND(n->library, "nvmlErrorString", n->error) &&
              FIND(n->library, "nvmlDeviceGetCount_v2", n->count) &&
              FIND(n->library, "nvmlDeviceGetHandleByIndex_v2", n->handle) &&
              FIND(n->library, "nvmlDeviceGetName", n->name) &&
              FIND(n->library, "nvmlDeviceGetUUID", n->uuid) &&
              FIND(n->library, "nvmlDeviceGetMemoryInfo", n->memory) &&
              FIND(n->library, "nvmlDeviceGetPciInfo_v3", n->pci);
    (void)FIND(n->library, "nvmlDeviceGetCudaComputeCapability", n->capability);
    (void)FIND(n->library, "nvmlDeviceGetNumGpuCores", n->cores);
    (void)FIND(n->library, "nvmlDeviceGetMigMode", n->mig);
    (void)FIND(n->library, "nvmlDeviceGetNvLinkState", n->link_state);
    (void)FIND(n->library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", n->link_pci);
    (void)FIND(n->library, "nvmlDeviceGetNvLinkRemoteDeviceType", n->link_end);
    (void)FIND(n->library, "nvmlDeviceGetFieldValues", n->fields);
    (void)FIND(n->library, "nvmlSystemGetDriverVersion", n->driver);
    (void)FIND(n->library, "nvmlSystemGetCudaDriverVersion_v2", n->cuda);
    return all;
}

static const char *advice(int result) {
    switch (result) {
    case NVML_DRIVER_NOT_LOADED:
        return ": the kernel has no nvidia module loaded";
    case NVML_NO_PERMISSION:
    case NVML_BLOCKED:
        return ": this process may not open /dev/nvidia*";
    case NVML_VERSION_MISMATCH:
        return ": kernel module and libraries have different versions; reboot";
    default:
        return "";
    }
}

dlc_status nvml_open(nvml_calls *n) {
    memset(n, 0, sizeof *n);
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "GPUs can't be listed: %s (it comes with NVIDIA's driver)",
                          dlerror());
    dlc_status status = DLC_OK;
    if (!find_calls(n)) {
        status = host->fail(DLC_ERR_UNAVAILABLE,
                            "GPUs can't be listed: libnvidia-ml.so.1 is too old");
    } else {
        int result = n->init();
        if (result != NVML_OK)
            status = host->fail(DLC_ERR_UNAVAILABLE, "GPUs can't be listed: %s%s",
                                n->error(result), advice(result));
    }
    if (status != DLC_OK) {
        dlclose(n->library);
        n->library = NULL;
    }
    return status;
}

void nvml_close(nvml_calls *nvml) {
    if (!nvml->library)
        return;
    (void)nvml->shutdown();
    dlclose(nvml->library);
    nvml->library = NULL;
}
