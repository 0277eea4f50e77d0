/* The way that bytes should take between two ends of the graph, judged by how near they
 * are: what the machine allows, before any transport is asked. */
#ifndef DLC_TOPO_ROUTE_H
#define DLC_TOPO_ROUTE_H

#include "topo/link.h"

/* From the best to the last resort. */
typedef enum dlc_way {
    DLC_WAY_P2P,  /* each reads the other device's memory */
    DLC_WAY_SHM,  /* memory that both processors see */
    DLC_WAY_HOST, /* staged: two copies through host memory */
    DLC_WAY_RDMA, /* the adapters read and write device memory */
    DLC_WAY_NET,  /* the network, from and to host memory */
    DLC_WAYS      /* none of them */
} dlc_way;

typedef struct dlc_way_verdict {
    int possible;
    char reason[256]; /* why it can or cannot be, in words */
} dlc_way_verdict;

typedef struct dlc_topo_route {
    dlc_topo_path path;
    dlc_way way;    /* chosen: the first that is possible; DLC_WAYS: there is none */
    int32_t nic[2]; /* the adapter that is nearest to each end; -1: none */
    dlc_way_verdict verdict[DLC_WAYS];
} dlc_topo_route;

/* Between two GPUs, processors (also nodes, caches, cores) or ranks. */
void dlc_topo_route_between(const dlc_topo *topo, int32_t a, int32_t b,
                            dlc_topo_route *route);

/* The adapter that this end uses: of those nearest to it the fastest; ends that share
 * several of them take turns. -1: its machine has none. */
int32_t dlc_topo_route_nic(const dlc_topo *topo, int32_t end, dlc_topo_path *path);

const char *dlc_way_text(dlc_way way); /* "p2p", "shm", "host", "rdma", "net", "none" */

#endif
