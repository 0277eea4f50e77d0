/* Reads recorded machines: hwloc's XML (lstopo machine.xml), which begins with
 * <topology>, and NCCL's XML, which begins with <system>. */
#ifndef DLC_TOPOLOGY_READ_H
#define DLC_TOPOLOGY_READ_H

#include "topology/graph.h"
#include "topology/xml.h"

/* Reads a file of either format into an empty graph. Harmless oddities become notes;
 * any other mistake is an error with file and line, and the graph stays empty. */
dlc_status dlc_topo_read(const char *path, dlc_topo *topo);
/* As dlc_topo_read, for a document that has been parsed. */
dlc_status dlc_topo_read_xml(const dlc_xml *xml, dlc_topo *topo);

/* The readers of the two formats; after an error `topo` may contain some nodes. */
dlc_status dlc_topo_read_hwloc(const dlc_xml *xml, dlc_topo *topo);
dlc_status dlc_topo_read_system(const dlc_xml *xml, dlc_topo *topo);

/* An object of hwloc's, by the number that its distance tables use. */
typedef struct dlc_topo_object {
    int64_t number;
    int32_t node;
} dlc_topo_object;

/* Reads the NVLinks between these objects, which hwloc stores as distances. */
dlc_status dlc_topo_read_distances(const dlc_xml *xml, const dlc_topo_object *object,
                                   size_t objects, dlc_topo *topo);

/* Whether a PCI class (16 bits) is that of an accelerator, or of a network adapter. */
int dlc_topo_is_gpu(unsigned class, unsigned vendor);
int dlc_topo_is_nic(unsigned class);
/* Numbers the GPUs, NICs and other devices from node `first` on, in the order in which
 * they were found, unless the source has numbered all of a kind. */
void dlc_topo_number(dlc_topo *topo, size_t first);

#endif
