/* The levels of a communicator: which ranks form a team on each, and which part of a
 * buffer each of them works on. Pure functions of the ranks' domains; comm.c opens the
 * teams.
 *
 * On the innermost level the ranks of each domain are a team. On every further level
 * the ranks that have the same shard of their domains of the level below are a team:
 * with two levels inside and between nodes of two ranks,
 *
 *     node 0  [ 0 | 1 ]      teams {0,1} {2,3} inside the nodes
 *     node 1  [ 2 | 3 ]      teams {0,2} {1,3} between them, each for half of the
 * buffer
 *
 * so that the link between two domains carries every byte once for each of them. Where
 * teams of a level have unequal numbers of ranks, their shards would not agree: then
 * only the first rank of each goes on to the next level, with the team's whole part.
 */
#ifndef DLC_COMM_LEVELS_H
#define DLC_COMM_LEVELS_H

#include <dlcore/transport.h>

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

/* `within`: the domains that end each level, ascending; that of the last is
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
