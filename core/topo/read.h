/* Recorded machines: hwloc's XML (lstopo machine.xml), which begins with
 * <topology>, and NCCL's XML, which begins with <system>.
 */
#ifndef DLC_TOPO_READ_H
#define DLC_TOPO_READ_H

#include "topo/graph.h"
#include "topo/xml.h"

/* Reads a file into an empty graph; which format it has its first element tells. What
 * is odd but harmless becomes a note; anything else wrong is an error with file and
 * line, and the graph stays empty. */
dlc_status dlc_topo_read(const char *path, dlc_topo *topo);
/* The same for a document that was parsed already. */
dlc_status dlc_topo_read_xml(const dlc_xml *xml, dlc_topo *topo);

/* The two formats; on an error `topo` may have grown. */
dlc_status dlc_topo_read_hwloc(const dlc_xml *xml, dlc_topo *topo);
dlc_status dlc_topo_read_system(const dlc_xml *xml, dlc_topo *topo);

/* Objects of hwloc's by the number that its tables of distances call them by. */
typedef struct dlc_topo_object {
    int64_t number;
    int32_t node;
} dlc_topo_object;

/* The NVLinks that hwloc keeps as distances, between these objects. */
dlc_status dlc_topo_read_distances(const dlc_xml *xml, const dlc_topo_object *object,
                                   size_t objects, dlc_topo *topo);

/* Shared: is this PCI class (16 bits) one of an accelerator, of a network adapter? */
int dlc_topo_is_gpu(unsigned class, unsigned vendor);
int dlc_topo_is_nic(unsigned class);
/* Gives GPUs and the like numbers in the order in which they were found, unless the
 * source numbers all of them. */
void dlc_topo_number(dlc_topo *topo, size_t first);

#endif
