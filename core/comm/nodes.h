/* Which ranks share a machine: the nodes of a group of ranks, numbered in the order of
 * their first ranks. */
#ifndef DLC_COMM_NODES_H
#define DLC_COMM_NODES_H

#include <dlcore/layer.h>
#include <dlcore/transport.h>

#include "base/status.h"

typedef struct dlc_nodes {
    int32_t ranks, nodes;
    int32_t *node;   /* owned; the node of rank r: 0 .. nodes-1 */
    int32_t *local;  /* owned; the number of rank r within its node */
    int32_t *member; /* owned; all ranks, node after node, ascending within a node */
    int32_t *first;  /* owned; where node i begins in `member`; nodes + 1 elements */
    int even;        /* every node has the same number of ranks */
    dlc_rank_info *rank_info; /* owned; one per rank, an array of this build's size */
} dlc_nodes;

/* `rank_info`: one per rank, walked by size and copied. */
dlc_status dlc_nodes_make(const dlc_rank_info *rank_info, int32_t ranks,
                          dlc_nodes *nodes);
void dlc_nodes_free(dlc_nodes *nodes); /* {0} is allowed */

/* The order of a reduction over the ranks, as ranks-1 steps that leave the result with
 * rank 0: pairwise over the ranks of each node, then over the nodes. */
void dlc_nodes_merges(const dlc_nodes *nodes, dlc_merge *merges);

/* The number of ranks of a node. */
static inline int32_t dlc_nodes_size(const dlc_nodes *nodes, int32_t node) {
    return nodes->first[node + 1] - nodes->first[node];
}

#endif
