/* Draws the machines of `dlcore topo`: packages, NUMA nodes, PCI switches, devices,
 * adapters and ranks, each inside its parent; and at the common ancestor of two ends
 * the class of their path and the transport that they use. Called by topo_svg.c. */
#ifndef DLC_TOOLS_TOPO_MACHINES_H
#define DLC_TOOLS_TOPO_MACHINES_H

#include "topo_tree.h"

typedef struct topo_canvas {
    const topo_report *report;
    const topo_tree *tree;
    dlc_text *svg;
    double left;
    double y;     /* of the next item */
    double right; /* right edge of everything drawn */
} topo_canvas;

/* Begins at to->y, and sets it below what was drawn. */
void topo_machines_draw(topo_canvas *to);

#endif
