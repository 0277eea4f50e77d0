/* Initializes hwloc without its plugins. */
#include "topology/hwloc_init.h"

#include <stdlib.h>

#include "base/memory.h"

/* hwloc's plugins look for displays, OpenCL and the like. They are of no use here, and
 * loading them takes longer than everything else. */
int dlc_hwloc_init(hwloc_topology_t *topology) {
    static const char name[] = "HWLOC_PLUGINS_PATH";
    const char *before = getenv(name);
    char *kept = before ? dlc_strdup(before) : NULL;
    if (before && !kept)
        return -1;
    setenv(name, "/nonexistent", 1);
    int rc = hwloc_topology_init(topology);
    if (kept)
        setenv(name, kept, 1);
    else
        unsetenv(name);
    dlc_free(kept);
    return rc;
}
