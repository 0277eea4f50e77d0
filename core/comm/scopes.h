/* What the transports of a scope are asked with: its groups of ranks, and the slowest
 * link in each. Called by choose.c. */
#ifndef DLC_COMM_SCOPES_H
#define DLC_COMM_SCOPES_H

#include "comm/choose.h"

/* The ranks of a choice, and how fast each reaches the network. */
typedef struct dlc_scopes {
    const dlc_choose_args *args;
    int32_t ranks;
    dlc_rank_info *rank_info; /* owned */
    double *network;          /* owned; bytes a second of each rank's adapter; of ranks
                                 that share one, together */
    double *latency;          /* owned; seconds of a message through it */
    int32_t *sharers;         /* owned; how many ranks share it */
    int32_t *rack_nodes;      /* owned; how many machines are in its rack */
    /* Owned; per level: the number of each rank in its domain, that of domains, and of
     * the ranks of each. */
    int32_t *number[DLC_DOMAIN_LEVELS];
    int32_t domains[DLC_DOMAIN_LEVELS], size[DLC_DOMAIN_LEVELS];
    unsigned uneven;      /* a bit per level on which domains differ in size */
    int32_t *members;     /* owned; scratch: the ranks of a group */
    dlc_rank_info *group; /* owned; scratch: their infos */
} dlc_scopes;

/* `args` must stay valid until close. */
dlc_status dlc_scopes_open(const dlc_choose_args *args, dlc_scopes *scopes);
void dlc_scopes_close(dlc_scopes *scopes); /* {0} is allowed */

/* The levels that a communicator may have below DLC_DOMAIN_JOB, ascending: those that
 * group the ranks, each otherwise than the one before, and that keep the order of
 * reductions. Returns how many. */
int32_t dlc_scopes_levels(const dlc_scopes *scopes,
                          dlc_domain_level level[DLC_DOMAIN_LEVELS]);

/* Whether a level joins domains of the one below (DLC_SCOPE_RANKS: ranks), but not all
 * of them. */
int dlc_scopes_has_level(const dlc_scopes *scopes, int32_t below,
                         dlc_domain_level level);

/* The part of a buffer that each rank of a scope's groups reduces. */
double dlc_scopes_fraction(const dlc_scopes *scopes, dlc_comm_scope scope);

/* The arguments of predict for the next group of a scope that has several ranks. *at: a
 * rank from which to go on, 0 at first. Returns 0 if there is none. They are valid
 * until the next call. */
int dlc_scopes_next(dlc_scopes *scopes, dlc_comm_scope scope, int32_t *at,
                    dlc_transport_args *group);

#endif
