/* Named ranges for the profiler (NVTX, headers only): no effect without a profiler. */
#include <nvtx3/nvToolsExt.h>

#include "gpu.h"

void range_begin(dlc_device *device, const char *name) {
    (void)device;
    (void)nvtxRangePushA(name);
}

void range_end(dlc_device *device) {
    (void)device;
    (void)nvtxRangePop();
}
