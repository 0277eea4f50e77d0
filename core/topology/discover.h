/* Discovers the machine that this process runs on, as a graph. Called by the launcher,
 * `dlcore topo` and `dlcore plan`. */
#ifndef DLC_TOPOLOGY_DISCOVER_H
#define DLC_TOPOLOGY_DISCOVER_H

#include <dlcore/transport.h>

#include "base/status.h"
#include "topology/graph.h"

struct hwloc_topology; /* hwloc_topology_t points to one */

/* Loads this machine (`io`: PCI devices and adapters, too, which takes ten times as
 * long) or a synthetic one, without hwloc's plugins. hwloc_topology_destroy() frees it.
 * Not thread-safe, as it changes the environment temporarily: call it before threads
 * are started. */
dlc_status dlc_hwloc_load(int io, const char *synthetic,
                          struct hwloc_topology **topology);

/* Fills an empty graph with what dlc_hwloc_load has loaded of this machine, and with
 * the speeds of its adapters. */
dlc_status dlc_topo_read_machine(struct hwloc_topology *topology, dlc_topo *topo);
/* Loads this machine, with all its devices, and fills the graph. Not thread-safe: see
 * dlc_hwloc_load. */
dlc_status dlc_topo_discover(dlc_topo *topo);

/* Adds the devices and links that a device plugin describes to the machine with this
 * node number; a device is merged with hwloc's node of the same PCI address. A plugin
 * that fails leaves a note. */
dlc_status dlc_topo_add_devices(dlc_topo *topo, int32_t machine,
                                const dlc_feature *feature);

/* Adds a rank to this machine: below its device, or in its NUMA node or package. */
dlc_status dlc_topo_add_rank(dlc_topo *topo, int32_t machine, int32_t rank,
                             const dlc_rank_info *info);

/* Completes the adapters of a graph by what Linux knows and hwloc does not tell: their
 * speed, and whether they have a link. What cannot be read stays unknown. `root` is put
 * before every path ("" for this machine; tests use their own). */
void dlc_topo_read_live_nics(const char *root, dlc_topo *topo);

#endif
