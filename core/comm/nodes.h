/* Which ranks share a machine: the nodes of a team, in the order of their first
 * ranks. */
#ifndef DLC_COMM_NODES_H
#define DLC_COMM_NODES_H

#include <dlcore/transport.h>

#include "base/status.h"

typedef struct dlc_nodes {
    int32_t ranks, nodes;
    int32_t *node;   /* own; of rank r: 0 .. nodes-1 */
    int32_t *local;  /* own; of rank r: which of its node's ranks it is */
    int32_t *member; /* own; all ranks, node after node, each node's in order */
    int32_t *first;  /* own; where node i begins in `member`; nodes + 1 */
    int even;        /* every node has as many ranks */
    /* own; one a rank, of the size that this build knows: an array */
    dlc_place *place;
} dlc_nodes;

/* `places`: one a rank; walked by their size and copied. */
dlc_status dlc_nodes_make(const dlc_place *places, int32_t ranks, dlc_nodes *nodes);
void dlc_nodes_free(dlc_nodes *nodes); /* a zeroed one is allowed */

static inline int32_t dlc_nodes_size(const dlc_nodes *nodes, int32_t node) {
    return nodes->first[node + 1] - nodes->first[node];
}

#endif
