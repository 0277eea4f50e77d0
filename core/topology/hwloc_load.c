/* Loads hwloc without its plugins, and only what dlcore needs. */
#include "topology/hwloc_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* hwloc's plugins look for displays, OpenCL and the like. They are of no use here, and
 * loading them takes longer than everything else. */
static int init(hwloc_topology_t *topology) {
    static const char name[] = "HWLOC_PLUGINS_PATH";
    const char *before = getenv(name);
    char *kept = before ? dlc_strdup(before) : NULL;
    if (before && !kept)
        return -1;
    int rc = setenv(name, "/nonexistent", 1);
    if (rc == 0) {
        rc = hwloc_topology_init(topology);
        int restored = kept ? setenv(name, kept, 1) : unsetenv(name);
        if (rc == 0 && restored != 0) {
            hwloc_topology_destroy(*topology);
            rc = -1;
        }
    }
    dlc_free(kept);
    return rc;
}

dlc_status dlc_hwloc_load(int io, const char *synthetic, hwloc_topology_t *topology) {
    hwloc_topology_t made;
    if (init(&made))
        return dlc_fail(DLC_ERR_NOMEM, "hwloc cannot start: out of memory");
    hwloc_topology_set_io_types_filter(made, io ? HWLOC_TYPE_FILTER_KEEP_ALL
                                                : HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(made, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    /* hwloc's x86 component would bind this thread to each core in turn. The kernel's
     * data is enough. */
    hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                  "x86");
    dlc_status status = DLC_OK;
    errno = 0;
    if (synthetic && hwloc_topology_set_synthetic(made, synthetic))
        status = dlc_fail(DLC_ERR_CONFIG,
                          "hwloc cannot read '%s' as a synthetic machine", synthetic);
    else if (hwloc_topology_load(made))
        status = dlc_fail(errno == ENOMEM ? DLC_ERR_NOMEM : DLC_ERR_IO,
                          "hwloc cannot read this machine's topology: %s",
                          strerror(errno));
    if (status == DLC_OK)
        *topology = made;
    else
        hwloc_topology_destroy(made);
    return status;
}
