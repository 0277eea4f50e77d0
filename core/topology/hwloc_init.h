/* Starts hwloc; used within core/topology only. */
#ifndef DLC_TOPOLOGY_HWLOC_INIT_H
#define DLC_TOPOLOGY_HWLOC_INIT_H

#include <hwloc.h>

/* hwloc_topology_init without hwloc's plugins. Not thread-safe, as it changes the
 * environment temporarily: call it before threads are started. Returns 0 on success. */
int dlc_hwloc_init(hwloc_topology_t *topology);

#endif
