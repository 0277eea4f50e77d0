/* The machine that this process runs on, as a graph. */
#ifndef DLC_TOPO_DISCOVER_H
#define DLC_TOPO_DISCOVER_H

#include <dlcore/transport.h>

#include "topo/graph.h"

/* What hwloc finds, and then what the device plugins say of their devices and of the
 * links between them: a node that hwloc knows by the same PCI address is theirs.
 * A plugin that fails leaves a note. `topo` is empty before. Changes the environment
 * for a moment: call it before threads are started. */
dlc_status dlc_topo_discover(const dlc_feature *const *devices, size_t count,
                             dlc_topo *topo);

/* Adds what one device plugin says to the machine with node number `machine`. */
dlc_status dlc_topo_add_devices(dlc_topo *topo, int32_t machine,
                                const dlc_feature *feature);

/* Adds a rank where its place says: at its device, or in its NUMA node or package of
 * this machine. */
dlc_status dlc_topo_add_rank(dlc_topo *topo, int32_t machine, int32_t rank,
                             const dlc_place *place);

#endif
