/* The machines of `dlcore topo` as a picture: packages, NUMA nodes, PCI switches,
 * devices, adapters and ranks, each inside what it hangs on; where two ends meet, how
 * near that is and which transport they take. Called by topo_svg.c. */
#ifndef DLC_TOOLS_TOPO_MACHINES_H
#define DLC_TOOLS_TOPO_MACHINES_H

#include "topo_tree.h"

typedef struct topo_canvas {
    const topo_report *report;
    const topo_tree *tree;
    dlc_text *svg;
    double left;
    double y;     /* where the next thing goes */
    double right; /* of all that was drawn */
} topo_canvas;

/* Begins at y, and leaves it below what was drawn. */
void topo_machines_draw(topo_canvas *to);

#endif
