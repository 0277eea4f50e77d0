/* Loads hwloc's view of a machine. Called by the users of hwloc in core/topology, and
 * by the launcher, which reads cores and graph from one. */
#ifndef DLC_TOPOLOGY_HWLOC_LOAD_H
#define DLC_TOPOLOGY_HWLOC_LOAD_H

#include <hwloc.h>

#include "base/status.h"

/* Loads this machine (`io`: PCI devices and adapters, too, which takes ten times as
 * long) or a synthetic one. hwloc_topology_destroy() frees it. Not thread-safe, as it
 * changes the environment temporarily: call it before threads are started. */
dlc_status dlc_hwloc_load(int io, const char *synthetic, hwloc_topology_t *topology);

#endif
