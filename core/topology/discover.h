/* Discovers the machine that this process runs on, as a graph. Called by `dlcore topo`
 * and `dlcore plan`. */
#ifndef DLC_TOPOLOGY_DISCOVER_H
#define DLC_TOPOLOGY_DISCOVER_H

#include <dlcore/transport.h>

#include "topology/graph.h"

/* Fills an empty graph with what hwloc finds (`io`: PCI devices and adapters, too,
 * which takes ten times as long), and with the devices and links that the device
 * plugins describe; a device is merged with hwloc's node of the same PCI address. A
 * plugin that fails leaves a note. Not thread-safe, as it changes the environment
 * temporarily: call it before threads are started. */
dlc_status dlc_topo_discover(int io, const dlc_feature *const *devices, size_t count,
                             dlc_topo *topo);

/* Adds the devices and links of one device plugin to the machine with this node number.
 */
dlc_status dlc_topo_add_devices(dlc_topo *topo, int32_t machine,
                                const dlc_feature *feature);

/* Adds a rank to this machine: below its device, or in its NUMA node or package. */
dlc_status dlc_topo_add_rank(dlc_topo *topo, int32_t machine, int32_t rank,
                             const dlc_rank_info *info);

#endif
