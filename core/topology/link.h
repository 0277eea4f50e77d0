/* How two nodes of the graph are connected, classified as by `nvidia-smi topo -m`. */
#ifndef DLC_TOPOLOGY_LINK_H
#define DLC_TOPOLOGY_LINK_H

#include "topology/graph.h"

/* From the nearest to the farthest. */
typedef enum dlc_topo_class {
    DLC_TOPO_X,    /* the same device */
    DLC_TOPO_NV,   /* NV#: # direct links (NVLink, XGMI) */
    DLC_TOPO_SHM,  /* CPUs of one machine: shared memory */
    DLC_TOPO_PIX,  /* at most one PCI switch or bridge */
    DLC_TOPO_PXB,  /* several switches, but no host bridge */
    DLC_TOPO_PHB,  /* one host bridge */
    DLC_TOPO_NODE, /* several host bridges of one NUMA node */
    DLC_TOPO_SYS,  /* the links between NUMA nodes */
    DLC_TOPO_NET,  /* the network */
    DLC_TOPO_CLASSES
} dlc_topo_class;

typedef struct dlc_topo_path {
    dlc_topo_class class;
    int32_t links;           /* for DLC_TOPO_NV: how many */
    int32_t common_ancestor; /* of both, in the tree; -1: the path isn't in the tree */
    float gbs;               /* of the slowest known part, per direction; 0: unknown */
} dlc_topo_path;

/* The path between two nodes; ranks are taken for their devices. */
dlc_topo_path dlc_topo_path_between(const dlc_topo *topo, int32_t a, int32_t b);
/* The same without direct links. */
dlc_topo_path dlc_topo_path_in_tree(const dlc_topo *topo, int32_t a, int32_t b);
/* The device of a rank; any other node itself. */
int32_t dlc_topo_device_of(const dlc_topo *topo, int32_t node);

/* How fast bytes get over a link: a message takes latency + bytes / bandwidth. */
typedef struct dlc_topo_speed {
    double latency, bandwidth; /* seconds, without software; bytes a second each way */
} dlc_topo_speed;

/* What is usual for links of a class; of one of several direct links. */
dlc_topo_speed dlc_topo_typical(dlc_topo_class class);
/* As recorded, or else what is usual for such links. */
dlc_topo_speed dlc_topo_path_speed(const dlc_topo_path *path);
/* The latency of a network whose adapters access device memory. */
#define DLC_TOPO_RDMA_LATENCY 5e-6

/* "PIX", ...; "NV" without its number. */
const char *dlc_topo_class_text(dlc_topo_class class);
/* A line of the legend. */
const char *dlc_topo_class_help(dlc_topo_class class);
/* Writes "NV18", "PIX", ... */
void dlc_topo_path_text(const dlc_topo_path *path, char text[8]);

#endif
