/* The onednn layer plugin: layers of a net on the CPU, by oneDNN. Declares the layer
 * types. */
#include "onednn.h"

#include <dlcore/plugin.h>

const dlc_host *host;

static dlc_status load(const dlc_host *given) {
    host = given;
    const dnnl_version_t *version = dnnl_version();
    if (version->major != DNNL_VERSION_MAJOR)
        return host->fail(
            DLC_ERR_UNAVAILABLE, "built for oneDNN %d, but %d.%d.%d is installed",
            DNNL_VERSION_MAJOR, version->major, version->minor, version->patch);
    return DLC_OK;
}

#define LAYER_DEVICE "cpu"
#define SIXTEEN DLC_LAYER_BF16
#define SIXTEEN_MORE 0
#include "../shared/features.h"

DLC_PLUGIN("onednn", DLC_VERSION, "BSD-2-Clause", features, load);
