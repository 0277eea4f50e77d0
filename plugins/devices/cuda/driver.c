/* Loads the driver's library at run time, checks its version and resolves its calls for
 * shareable memory. */
#include "driver.h"

#include <string.h>

#include <cuda_runtime_api.h>

#include "gpu.h"
#include "symbols.h"

static const char *const library_name = "libcuda.so.1";

/* "13.0" of 13000 */
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

static dlc_status check_version(void *library) {
    CUresult (*get_version)(int *) = NULL;
    int version = 0;
    if (!FIND(library, "cuDriverGetVersion", get_version) ||
        get_version(&version) != CUDA_SUCCESS || version < 1)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "%s does not report its version: reinstall NVIDIA's driver",
                          library_name);
    /* Any driver of a major version runs what was built for it. */
    if (MAJOR(version) < MAJOR(CUDART_VERSION))
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "the driver is too old: it has CUDA %d.%d, this needs CUDA "
                          "%d.0 or later: install a newer NVIDIA driver",
                          MAJOR(version), MINOR(version), MAJOR(CUDART_VERSION));
    host->log(DLC_LOG_DEBUG, "the driver has CUDA %d.%d, this plugin's runtime %d.%d",
              MAJOR(version), MINOR(version), MAJOR(CUDART_VERSION),
              MINOR(CUDART_VERSION));
    return DLC_OK;
}

dlc_status driver_check(void) {
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "no CUDA driver: %s (it comes with NVIDIA's driver)",
                          dlerror());
    dlc_status status = check_version(library);
    dlclose(library);
    return status;
}

int driver_open(driver_calls *c) {
    c->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return 0;
    (void)FIND(c->library, "cuStreamBatchMemOp_v2", c->stream_batch);
    if (FIND(c->library, "cuDeviceGetAttribute", c->attribute) &&
        FIND(c->library, "cuMemGetAllocationGranularity", c->granularity) &&
        FIND(c->library, "cuMemCreate", c->create) &&
        FIND(c->library, "cuMemRelease", c->release) &&
        FIND(c->library, "cuMemAddressReserve", c->reserve) &&
        FIND(c->library, "cuMemAddressFree", c->unreserve) &&
        FIND(c->library, "cuMemMap", c->map) &&
        FIND(c->library, "cuMemUnmap", c->unmap) &&
        FIND(c->library, "cuMemSetAccess", c->access) &&
        FIND(c->library, "cuMemExportToShareableHandle", c->export_handle) &&
        FIND(c->library, "cuMemImportFromShareableHandle", c->import_handle))
        return 1;
    driver_close(c);
    return 0;
}

void driver_close(driver_calls *calls) {
    if (calls->library)
        dlclose(calls->library);
    memset(calls, 0, sizeof *calls);
}
