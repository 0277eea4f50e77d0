/* Where the nodes of the graph lie in the picture of `dlcore topo`: a machine is a
 * tree, drawn from the top, and a node's box spans all that is below it. Which
 * transport two ends take is told where the ways from both meet. Called by
 * topo_machines.c. */
#ifndef DLC_TOOLS_TOPO_TREE_H
#define DLC_TOOLS_TOPO_TREE_H

#include "topo_report.h"

/* The pairs of ends that meet at one place. */
typedef struct topo_mark {
    size_t pairs;
    dlc_topo_class class; /* of the first */
    char transports[64];  /* names, with ", " between; "none" where none joins some */
    double least, most;   /* GB/s measured; 0: nothing was */
} topo_mark;

typedef struct topo_box {
    int32_t home;          /* the box that it lies in; -1: none */
    int32_t shown;         /* itself, or the nearest box around what has none; -1 */
    int32_t row;           /* 0: a machine */
    int32_t begin, leaves; /* columns; no leaves: it is not drawn */
    int32_t next;          /* column of the next child, while columns are given out */
    int32_t cores;         /* that have no nearer box; they take the first column */
    int32_t inner;         /* boxes right in it that are no leaves */
    int32_t children;      /* boxes right in it */
    int is_leaf;           /* lies in the lowest row */
    topo_mark mark;
} topo_box;

/* Start with {0}; release with topo_tree_free. */
typedef struct topo_tree {
    topo_box *box;   /* own; one a node of the graph */
    topo_mark *link; /* own; by machine's node: pairs with links of their own */
    topo_mark network;
    int32_t rows; /* of boxes above the leaves */
} topo_tree;

dlc_status topo_tree_make(const topo_report *report, topo_tree *tree);
void topo_tree_free(topo_tree *tree);

/* "NAME", "NAME, 210 to 240 GB/s" of transports, "": no pairs meet there. */
void topo_mark_text(const topo_mark *mark, char *text, size_t bytes);

#endif
