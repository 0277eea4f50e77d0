/* hwloc, as it is used here: within the core's topology code only. */
#ifndef DLC_TOPO_MACHINE_H
#define DLC_TOPO_MACHINE_H

#include <hwloc.h>

/* hwloc_topology_init without hwloc's plugins. Changes the environment for a moment:
 * call it before threads are started. Not 0: hwloc cannot start. */
int dlc_hwloc_init(hwloc_topology_t *topology);

#endif
