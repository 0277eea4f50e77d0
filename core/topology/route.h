/* Routes: what the machines allow for bytes between two ends of the graph, judged by
 * the path between them, whatever transports are installed. Called by `dlcore topo` and
 * `dlcore plan`. */
#ifndef DLC_TOPOLOGY_ROUTE_H
#define DLC_TOPOLOGY_ROUTE_H

#include "topology/link.h"

/* In order of preference. */
typedef enum dlc_route {
    DLC_ROUTE_P2P,  /* each device accesses the other's memory */
    DLC_ROUTE_SHM,  /* shared memory of two CPUs */
    DLC_ROUTE_HOST, /* staged: two copies through host memory */
    DLC_ROUTE_RDMA, /* the network adapters access device memory */
    DLC_ROUTE_NET,  /* the network, from and to host memory */
    DLC_ROUTES      /* number of routes; none of them */
} dlc_route;

typedef struct dlc_route_verdict {
    int possible;
    char reason[256]; /* why it is possible or not */
} dlc_route_verdict;

typedef struct dlc_topo_route {
    dlc_topo_path path;
    dlc_route chosen; /* the first that is possible; DLC_ROUTES: none is */
    int32_t nic[2];   /* the nearest adapter of each end; -1: none */
    dlc_route_verdict verdict[DLC_ROUTES];
} dlc_topo_route;

/* Judges the routes between two GPUs, CPUs (or NUMA nodes, caches, cores) or ranks. */
void dlc_topo_route_between(const dlc_topo *topo, int32_t a, int32_t b,
                            dlc_topo_route *route);

/* The adapter for this end: the fastest of the nearest ones; ends with several equal
 * ones are distributed over them. *path is the path to it. -1: its machine has none. */
int32_t dlc_topo_route_nic(const dlc_topo *topo, int32_t end, dlc_topo_path *path);

/* How many adapters are as good for this end as the one that it was given: at least 1
 * if there is one. */
int32_t dlc_topo_route_nics(const dlc_topo *topo, int32_t end);

/* "p2p", "shm", "host", "rdma", "net" or "none". */
const char *dlc_route_text(dlc_route route);

#endif
