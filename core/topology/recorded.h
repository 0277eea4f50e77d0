/* Ranks on recorded machines, as a job would place them there. Called by `dlcore topo`,
 * and by the tests of what is decided on recorded machines. */
#ifndef DLC_TOPOLOGY_RECORDED_H
#define DLC_TOPOLOGY_RECORDED_H

#include <dlcore/transport.h>

#include "topology/graph.h"

typedef struct dlc_recorded {
    const char *path;
    int nodes;          /* so many machines of the file; 0: one */
    int ranks;          /* on machines without GPUs; 0: one per NUMA node, at least 2 */
    const char *device; /* of ranks on machines without GPUs */
} dlc_recorded;

/* Reads the file into an empty graph. Machines without GPUs get ranks, distributed over
 * their NUMA nodes; otherwise a rank computes on each GPU. */
dlc_status dlc_recorded_read(const dlc_recorded *recorded, dlc_topo *topo);

/* The rank info of a rank on this node of the graph; `accelerator` is the device of
 * ranks on GPUs. */
dlc_rank_info dlc_recorded_rank_info(const dlc_topo *topo, int32_t end,
                                     const char *accelerator);

#endif
