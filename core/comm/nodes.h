/* Which ranks share a machine, and which machines a rack: the nodes of a group of
 * ranks, and the order in which the group's gradients are added.
 *
 * With P(a, b, c, ...) for adding pairwise, ((a + b) + (c + d)) + ..., that order is
 *
 *     P over racks of ( P over the rack's nodes of ( P over the node's ranks ) )
 *
 * where ranks stand as dlc_rank_info.order says, near ones next to each other, and
 * nodes and racks in the order of their first ranks. It depends on where the ranks are,
 * and not on transports, levels, sizes or chunks. */
#ifndef DLC_COMM_NODES_H
#define DLC_COMM_NODES_H

#include <dlcore/layer.h>
#include <dlcore/transport.h>

#include "base/status.h"

typedef struct dlc_nodes {
    int32_t ranks, nodes;
    int32_t *node;   /* owned; the node of rank r: 0 .. nodes-1 */
    int32_t *local;  /* owned; the number of rank r within its node */
    int32_t *member; /* owned; all ranks, node after node, in their order */
    int32_t *first;  /* owned; where node i begins in `member`; nodes + 1 elements */
    int32_t
        *rack; /* owned; the rack of node i, 0 .. racks-1, as the nodes are sorted */
    int32_t racks;
    dlc_rank_info *rank_info; /* owned; one per rank, an array of this build's size */
} dlc_nodes;

/* The number of machines, which dlc_rank_info.node counts from 0. `rank_info`: one per
 * rank, of this build's size. */
int32_t dlc_nodes_count(const dlc_rank_info *rank_info, int32_t ranks);

/* Copies an array of `from`'s size, the fields that both sides know, to one of this
 * build's: a plugin's struct may be of another. */
void dlc_nodes_copy_info(const dlc_rank_info *from, int32_t ranks, dlc_rank_info *to);

/* Lists the ranks by dlc_rank_info.order. `rank_info`: of this build's size. */
void dlc_nodes_sort(const dlc_rank_info *rank_info, int32_t ranks, int32_t *sorted);

/* `rank_info`: one per rank, walked by size and copied. */
dlc_status dlc_nodes_make(const dlc_rank_info *rank_info, int32_t ranks,
                          dlc_nodes *nodes);
void dlc_nodes_free(dlc_nodes *nodes); /* {0} is allowed */

/* The order of a reduction over the ranks, as ranks-1 steps that leave the result with
 * the first rank: pairwise over the ranks of each node, over the nodes of each rack,
 * and over the racks. */
void dlc_nodes_merges(const dlc_nodes *nodes, dlc_merge *merges);

/* The first node of a rack, or the number of nodes. */
int32_t dlc_nodes_rack_begin(const dlc_nodes *nodes, int32_t rack);

/* The number of ranks of a node. */
static inline int32_t dlc_nodes_size(const dlc_nodes *nodes, int32_t node) {
    return nodes->first[node + 1] - nodes->first[node];
}

#endif
