/* The layout of the graph in the picture of `dlcore topo`: a machine is a tree with the
 * root at the top, and a node's box spans its children. The transport of two ends is
 * shown at their common ancestor. Called by topo_machines.c. */
#ifndef DLC_TOOLS_TOPO_TREE_H
#define DLC_TOOLS_TOPO_TREE_H

#include "topo_report.h"

/* The pairs of ends with the same common ancestor. */
typedef struct topo_mark {
    size_t pairs;
    dlc_topo_class class; /* of the first */
    char transports[64];  /* names separated by ", "; "none" for pairs without one */
    double least, most;   /* GB/s; 0: not measured */
} topo_mark;

typedef struct topo_box {
    int32_t parent;        /* the box around it; -1: none */
    int32_t shown;         /* itself, or the nearest box around it if it has none; -1 */
    int32_t row;           /* 0: a machine */
    int32_t begin, leaves; /* columns; 0 leaves: it is not drawn */
    int32_t next;          /* column of the next child, during layout */
    int32_t cores;         /* cores without a nearer box; they use the first column */
    int32_t inner;         /* children that aren't leaves */
    int32_t children;      /* boxes directly inside it */
    int is_leaf;           /* in the lowest row */
    topo_mark mark;
} topo_box;

/* Start with {0}; release with topo_tree_free. */
typedef struct topo_tree {
    topo_box *box;   /* owned; one per node of the graph */
    topo_mark *link; /* owned; per machine's node: pairs with direct links */
    topo_mark network;
    int32_t rows; /* of boxes above the leaves */
} topo_tree;

dlc_status topo_tree_make(const topo_report *report, topo_tree *tree);
void topo_tree_free(topo_tree *tree);

/* Writes "NAME" or "NAME, 210 to 240 GB/s" of the transports; "": there are no pairs.
 */
void topo_mark_text(const topo_mark *mark, char *text, size_t bytes);

#endif
