/* The graph of a job's machines: what is in them and what joins it.
 *
 * Each machine is a tree (machine, package, NUMA node, cache, core; host bridge, PCI
 * switch, device), and across the trees run the links that devices have of their own.
 * A node's parent always comes before it, so that walks end. The graph of one machine
 * comes from the machine itself (discover.h) or from a file (read.h); those of several
 * are joined by pack.h.
 */
#ifndef DLC_TOPO_GRAPH_H
#define DLC_TOPO_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlc_topo_kind {
    DLC_TOPO_NONE, /* what is no node of its own */
    DLC_TOPO_MACHINE,
    DLC_TOPO_PACKAGE,
    DLC_TOPO_NUMA,
    DLC_TOPO_L3,
    DLC_TOPO_CORE,
    DLC_TOPO_HOST_BRIDGE, /* where PCI begins */
    DLC_TOPO_PORT,        /* a root port: a bridge with one slot below it */
    DLC_TOPO_SWITCH,      /* a PCI switch as a whole, all its ports */
    DLC_TOPO_GPU,         /* any accelerator */
    DLC_TOPO_NIC,         /* one port of a network adapter */
    DLC_TOPO_OTHER,       /* a PCI device that nobody says more of */
    DLC_TOPO_FABRIC,      /* a switch of the devices' own links, such as an NVSwitch */
    DLC_TOPO_RANK,        /* a process of the job */
    DLC_TOPO_KINDS        /* one more than the last */
} dlc_topo_kind;

enum {
    DLC_TOPO_DIRECT = 1u << 0,    /* a NIC that can read a GPU's memory, or a GPU whose
                                     memory it can read (GPUDirect RDMA) */
    DLC_TOPO_NO_DIRECT = 1u << 1, /* known not to; neither: not known */
};

typedef struct dlc_topo_node {
    dlc_topo_kind kind;
    int32_t parent;  /* -1: a machine */
    int32_t machine; /* the node that it is in, itself for a machine */
    int32_t numa;    /* as the operating system numbers them; -1: not known */
    int32_t package;
    int32_t index; /* among its like: the rank, the GPU's or the core's number; -1 */
    uint32_t flags;
    float gbs;        /* GB/s one way of what joins it to its parent; 0: not known */
    float speed;      /* of a NIC's port, GB/s; 0: not known */
    char name[64];    /* for people: "mlx5_0", "NVIDIA H200" */
    char address[32]; /* PCI address, "" for what has none */
    char device[24];  /* the device plugin that opens it ("cuda"); "": none does */
    int32_t device_index;
} dlc_topo_node;

/* A link that is no part of the tree. Both ends list it, or one. */
typedef struct dlc_topo_link {
    int32_t from, to; /* nodes: whose it is and where it leads */
    uint32_t kind;    /* dlc_link_kind of <dlcore/device.h> */
    int32_t lanes;    /* how many are bundled, 1 or more */
    float gbs;        /* all of them together, one way; 0: not known */
} dlc_topo_link;

/* Start with {0}; release with dlc_topo_free. */
typedef struct dlc_topo {
    dlc_topo_node *node;
    size_t nodes, room;
    dlc_topo_link *link;
    size_t links;
    char **note; /* what was odd in a file, and how it was taken */
    size_t notes;
} dlc_topo;

enum { DLC_TOPO_NODES_MAX = 1 << 20, DLC_TOPO_LANES_MAX = 256 };

void dlc_topo_free(dlc_topo *topo);

/* A node of that kind below `parent` (-1: a machine), in its machine, NUMA node and
 * package. The pointer is valid until the next one is added. Its texts are for
 * dlc_topo_text. NULL: too many nodes or out of memory, with the detail sentence. */
dlc_topo_node *dlc_topo_add(dlc_topo *topo, dlc_topo_kind kind, int32_t parent);
/* What dlc_topo_add has added last. */
int32_t dlc_topo_last(const dlc_topo *topo);

/* Lists a link; a second one of this kind between the two adds its lanes. */
dlc_status dlc_topo_join(dlc_topo *topo, int32_t from, int32_t to, uint32_t kind,
                         int32_t lanes, float gbs);

dlc_status dlc_topo_remark(dlc_topo *topo, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies a text, cut to what fits; what is no printable ASCII becomes '?', since it
 * may come from anywhere and ends up on a terminal. */
void dlc_topo_text(char *to, size_t bytes, const char *from);
/* A PCI address in its usual form (lower case, domain in front) if it is one, else as
 * it stands. */
void dlc_topo_address(char *to, size_t bytes, const char *from);

/* The node of a machine with this PCI address; -1: there is none. */
int32_t dlc_topo_at(const dlc_topo *topo, int32_t machine, const char *address);
/* The n-th node of a kind in a machine (-1: in any); -1: there is none. */
int32_t dlc_topo_nth(const dlc_topo *topo, int32_t machine, dlc_topo_kind kind,
                     size_t n);
size_t dlc_topo_count(const dlc_topo *topo, int32_t machine, dlc_topo_kind kind);

/* "package", "GPU", ...; "?" for another number. */
const char *dlc_topo_kind_text(dlc_topo_kind kind);
/* What a person calls it: "rank 3", "GPU0", "mlx5_0"; in front of it the machine's
 * number where there are several: "1:GPU0". */
void dlc_topo_label(const dlc_topo *topo, int32_t node, char *text, size_t bytes);

#endif
