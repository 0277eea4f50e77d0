/* How near two nodes of the graph are, in the words of `nvidia-smi topo -m`. */
#ifndef DLC_TOPO_LINK_H
#define DLC_TOPO_LINK_H

#include "topo/graph.h"

/* From near to far. */
typedef enum dlc_topo_class {
    DLC_TOPO_X,    /* the same device */
    DLC_TOPO_NV,   /* NV#: # links of the devices' own */
    DLC_TOPO_SHM,  /* processors of one machine: shared memory */
    DLC_TOPO_PIX,  /* at most one PCI switch or bridge */
    DLC_TOPO_PXB,  /* several, but no host bridge */
    DLC_TOPO_PHB,  /* one host bridge */
    DLC_TOPO_NODE, /* several host bridges of one NUMA node */
    DLC_TOPO_SYS,  /* the links between NUMA nodes */
    DLC_TOPO_NET,  /* the network */
    DLC_TOPO_CLASSES
} dlc_topo_class;

typedef struct dlc_topo_path {
    dlc_topo_class class;
    int32_t lanes;   /* NV: how many */
    int32_t through; /* the node where the ways from both meet; -1: not in the tree */
    float gbs;       /* of the narrowest part that is known, one way; 0: none is */
} dlc_topo_path;

/* A rank is where its device is. */
dlc_topo_path dlc_topo_path_between(const dlc_topo *topo, int32_t a, int32_t b);
/* The device of a rank, else the node itself. */
int32_t dlc_topo_device_of(const dlc_topo *topo, int32_t node);

const char *
    dlc_topo_class_text(dlc_topo_class class); /* "PIX"; "NV" without its number */
const char *dlc_topo_class_help(dlc_topo_class class); /* a line of the legend */
/* "NV18", "PIX", ...: up to 8 letters with the NUL. */
void dlc_topo_path_text(const dlc_topo_path *path, char text[8]);

#endif
