/* Serializes graphs, so that ranks can exchange what they discovered. The format is the
 * same on all machines; input is untrusted and checked. */
#ifndef DLC_TOPOLOGY_PACK_H
#define DLC_TOPOLOGY_PACK_H

#include "topology/graph.h"

/* Serializes a graph without its notes. Release *bytes with dlc_free. */
dlc_status dlc_topo_pack(const dlc_topo *topo, unsigned char **bytes, size_t *size);

/* Appends the machines of a packed graph. Trailing zeros are allowed, because an
 * all-gather pads to one size. DLC_ERR_DATA: the bytes are not a packed graph; `topo`
 * is unchanged.
 */
dlc_status dlc_topo_unpack(const void *bytes, size_t size, dlc_topo *topo);

#endif
