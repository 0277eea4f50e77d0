/* The graph of a job's machines: their parts and the links between them.
 *
 * Each machine is a tree (machine, package, NUMA node, cache, core; host bridge, PCI
 * switch, device); direct links between devices (NVLink, XGMI) are kept beside the
 * tree. A node's parent always comes before it, so that walks end. The graph of one
 * machine comes from the machine itself (discover.h) or from a file (read.h); the
 * graphs of several are combined with dlc_topo_unpack.
 */
#ifndef DLC_TOPOLOGY_GRAPH_H
#define DLC_TOPOLOGY_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlc_topo_kind {
    DLC_TOPO_NONE, /* not a node of its own */
    DLC_TOPO_MACHINE,
    DLC_TOPO_PACKAGE,
    DLC_TOPO_NUMA,
    DLC_TOPO_L3,
    DLC_TOPO_CORE,
    DLC_TOPO_HOST_BRIDGE, /* the root of a PCI tree */
    DLC_TOPO_PORT,        /* a root port: a bridge with one slot */
    DLC_TOPO_SWITCH,      /* a whole PCI switch, with all its ports */
    DLC_TOPO_GPU,         /* any accelerator */
    DLC_TOPO_NIC,         /* one port of a network adapter */
    DLC_TOPO_OTHER,       /* any other PCI device */
    DLC_TOPO_FABRIC,      /* a switch of direct device links, such as an NVSwitch */
    DLC_TOPO_RANK,        /* a process of the job */
    DLC_TOPO_KINDS        /* number of kinds */
} dlc_topo_kind;

enum {
    DLC_TOPO_DIRECT = 1u << 0, /* a NIC that can read GPU memory, or a GPU whose memory
                                  a NIC can read (GPUDirect RDMA) */
    DLC_TOPO_NO_DIRECT = 1u << 1, /* known to lack this; if neither is set: unknown */
    DLC_TOPO_DOWN = 1u << 2,      /* a NIC without a link, which nobody is given */
};

typedef struct dlc_topo_node {
    dlc_topo_kind kind;
    int32_t parent;  /* -1 for a machine */
    int32_t machine; /* the node of its machine; itself for a machine */
    int32_t numa;    /* as numbered by the operating system; -1: unknown */
    int32_t package;
    int32_t index; /* number among nodes of its kind (rank, GPU, core); -1: none */
    uint32_t flags;
    float gbs;        /* bandwidth to its parent, GB/s per direction; 0: unknown */
    float speed;      /* of a NIC's port, GB/s; 0: unknown */
    char name[64];    /* for display: "mlx5_0", "NVIDIA H200" */
    char address[32]; /* PCI address, or "" */
    char device[24];  /* the device plugin that opens it ("cuda"); "": none */
    int32_t device_index;
} dlc_topo_node;

/* A direct link between devices, outside the tree. One or both of its ends list it. */
typedef struct dlc_topo_link {
    int32_t from, to; /* nodes: the end that lists it, and the other */
    uint32_t kind;    /* dlc_link_kind of <dlcore/device.h> */
    int32_t count;    /* number of bonded links, at least 1 */
    float gbs;        /* of all of them, per direction; 0: unknown */
} dlc_topo_link;

/* Start with {0}; release with dlc_topo_free. */
typedef struct dlc_topo {
    dlc_topo_node *node;
    size_t nodes;
    dlc_topo_link *link;
    size_t links;
    char **note; /* oddities of a file, and how they were resolved */
    size_t notes;
} dlc_topo;

/* Limits; the second is of the links in one dlc_topo_link. */
enum { DLC_TOPO_NODES_MAX = 1 << 20, DLC_TOPO_LINK_COUNT_MAX = 256 };

void dlc_topo_free(dlc_topo *topo);

/* Adds a node below `parent` (-1 for a machine), in the parent's machine, NUMA node and
 * package. The pointer is valid until the next node is added; set its texts with
 * dlc_topo_text. NULL: too many nodes or out of memory; dlc_detail says which. */
dlc_topo_node *dlc_topo_add(dlc_topo *topo, dlc_topo_kind kind, int32_t parent);
/* The node that was added last. */
int32_t dlc_topo_last(const dlc_topo *topo);

/* Adds a link; a second one of the same kind between the two adds to its count. */
dlc_status dlc_topo_add_link(dlc_topo *topo, int32_t from, int32_t to, uint32_t kind,
                             int32_t count, float gbs);

/* Adds a note, formatted as by printf. */
dlc_status dlc_topo_add_note(dlc_topo *topo, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies a text, truncated to what fits. Anything but printable ASCII becomes '?',
 * because the text may come from an untrusted file and is shown on a terminal. */
void dlc_topo_text(char *to, size_t bytes, const char *from);
/* Copies a PCI address in canonical form (lower case, with domain); any other text is
 * copied as it is. */
void dlc_topo_address(char *to, size_t bytes, const char *from);

/* The node of a machine with this PCI address; -1: none. */
int32_t dlc_topo_at(const dlc_topo *topo, int32_t machine, const char *address);
/* The n-th node of a kind in a machine (-1: in any machine); -1: none. */
int32_t dlc_topo_nth(const dlc_topo *topo, int32_t machine, dlc_topo_kind kind,
                     size_t n);
/* The number of nodes of a kind in a machine (-1: in all machines). */
size_t dlc_topo_count(const dlc_topo *topo, int32_t machine, dlc_topo_kind kind);

/* "package", "GPU", ...; "?" for an invalid kind. */
const char *dlc_topo_kind_text(dlc_topo_kind kind);
/* Writes a node's label for display: "rank 3", "GPU0", "mlx5_0"; with the machine's
 * number in front if there are several machines: "1:GPU0". */
void dlc_topo_label(const dlc_topo *topo, int32_t node, char *text, size_t bytes);

/* ---- Serializing (pack.c) ---------------------------------------------------------
 */

/* So that ranks can exchange what they discovered. The format is the same on all
 * machines; input is untrusted and checked. */

/* Serializes a graph without its notes. Release *bytes with dlc_free. */
dlc_status dlc_topo_pack(const dlc_topo *topo, unsigned char **bytes, size_t *size);

/* Appends the machines of a packed graph. Trailing zeros are allowed, because an
 * all-gather pads to one size. DLC_ERR_DATA: the bytes are not a packed graph; `topo`
 * is unchanged.
 */
dlc_status dlc_topo_unpack(const void *bytes, size_t size, dlc_topo *topo);

#endif
