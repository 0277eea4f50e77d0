/* A graph as bytes, so that ranks can tell each other what they see. The form is the
 * same on all machines; what comes from elsewhere is checked as a stranger's. */
#ifndef DLC_TOPO_PACK_H
#define DLC_TOPO_PACK_H

#include "topo/graph.h"

/* *bytes: own, release with dlc_free. Notes stay behind. */
dlc_status dlc_topo_pack(const dlc_topo *topo, unsigned char **bytes, size_t *size);

/* Adds the machines of a packed graph behind those that are there. Zeroes behind it are
 * allowed: gathered pieces have one size. DLC_ERR_DATA: these bytes are no graph;
 * `topo` is as before. */
dlc_status dlc_topo_unpack(const void *bytes, size_t size, dlc_topo *topo);

#endif
