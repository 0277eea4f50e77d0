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

/* ---- The levels of a communicator ------------------------------------------------ */

/* Which ranks form a team on each level, and which part of a buffer each of them works
 * on: pure functions of the ranks' domains; comm_open.c opens the teams.
 *
 * On the innermost level the ranks of each domain are a team. On every further level
 * the ranks that have the same shard of their domains of the level below are a team:
 * with two levels inside and between nodes of two ranks,
 *
 *     node 0  [ 0 | 1 ]      teams {0,1} {2,3} inside the nodes
 *     node 1  [ 2 | 3 ]      teams {0,2} {1,3} between them, each for half
 *
 * so that the link between two domains carries every byte once for each of them. Where
 * teams of a level have unequal numbers of ranks, their shards would not agree: then
 * only the first rank of each goes on to the next level, with the team's whole part.
 */

/* The most levels. */
#define DLC_COMM_LEVELS DLC_DOMAIN_LEVELS

/* One level; the arrays have an element per rank. */
typedef struct dlc_level {
    int32_t *team;     /* owned; the first rank of its team; -1: it has none here */
    int32_t *position; /* owned; its number in its team */
    int32_t *size;     /* owned; how many ranks its team has */
    int32_t *leads;    /* owned; 1: it has the first part of its domain's buffer. Those
                          ranks take part in a broadcast on this level */
    int even;          /* all teams have the same size, so that they scatter */
} dlc_level;

typedef struct dlc_levels {
    int32_t ranks, levels;
    int32_t *order; /* owned; all ranks in the order in which they reduce */
    dlc_level level[DLC_COMM_LEVELS];
} dlc_levels;

/* Whether two ranks are in one domain. */
int dlc_levels_same_domain(const dlc_rank_info *a, const dlc_rank_info *b,
                           dlc_domain_level level);

/* `within`: the domain in which each level ends, ascending; the last level ends with
 * DLC_DOMAIN_JOB. Free with dlc_levels_free. */
dlc_status dlc_levels_make(const dlc_rank_info *rank_info, int32_t ranks,
                           const dlc_domain_level *within, int32_t levels,
                           dlc_levels *made);
void dlc_levels_free(dlc_levels *levels); /* {0} is allowed */

/* The ranks of this rank's team, in their order; returns how many. */
int32_t dlc_levels_team(const dlc_levels *levels, int32_t level, int32_t rank,
                        int32_t *members);

/* Whether every rank ends up with a shard of its own. */
int dlc_levels_has_shards(const dlc_levels *levels);

#endif
