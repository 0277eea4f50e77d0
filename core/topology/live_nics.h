/* What Linux knows of the network adapters of this machine, and hwloc does not tell:
 * their speed, and whether they have a link. Called by discover.c. */
#ifndef DLC_TOPOLOGY_LIVE_NICS_H
#define DLC_TOPOLOGY_LIVE_NICS_H

#include "topology/graph.h"

/* Completes the adapters of a graph; what cannot be read stays unknown. `root` is put
 * before every path ("" for this machine; tests use their own). */
void dlc_topo_read_live_nics(const char *root, dlc_topo *topo);

#endif
