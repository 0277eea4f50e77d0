/* One of the two sets of parameters of a net (DLC_PARAMS_WHOLE, DLC_PARAMS_ROWS), with
 * all that keeps it in step with the ranks that have the same: the exchange of its
 * gradients, its slots, and the consistency model that updates it. Owned by the
 * session, opened by param_sets.h.
 *
 * Whole parameters are reduced over all ranks, or those of a pipeline stage. For rows
 * of tensor-parallel layers each rank of a tensor group has seen the samples of all of
 * the group, so they are reduced over the ranks of other groups that have these rows.
 */
#ifndef DLC_SESSION_PARAM_SET_H
#define DLC_SESSION_PARAM_SET_H

#include "comm/exchange.h"
#include "net/net.h"
#include "session/replicas.h"
#include "session/updates.h"
#include "solver/accumulate.h"
#include "solver/ema.h"
#include "solver/updater.h"

/* Initialize with {0}. */
typedef struct dlc_param_set {
    /* Set when the ranks connect. */
    dlc_comm *comm; /* of the ranks that have these parameters */
    dlc_replicas replicas;

    const dlc_arenas *arenas; /* of the net; NULL: not open, or without elements */
    size_t *bucket_begin;     /* own */
    int32_t buckets;
    dlc_exchanger *exchanger;
    dlc_memory slot[DLC_MAX_STATES]; /* this rank's shards, if updates are sharded */
    int32_t taken; /* 1 + the state that the gradients' arena holds; 0: none */
    dlc_accumulator accumulator;
    dlc_ema ema; /* of `slot` (session/ema.h) */
    dlc_norm_peers peers;
    dlc_solver_updater *updater;
    dlc_consistency *model;
    int is_late;         /* the model is told in the end that gradients are ready */
    int deferred_update; /* weights are updated when the next forward needs them */
    dlc_updates updates; /* deferred ones that are still pending */
} dlc_param_set;

/* For each set that has elements, also of a const session. */
// NOLINTBEGIN(bugprone-macro-parentheses): `each` is declared
#define DLC_EACH_PARAM_SET(session, each) \
    for (dlc_param_set *each = (dlc_param_set *)(session)->set; \
         each < (session)->set + DLC_PARAM_SETS; each++) \
        if (each->arenas)
// NOLINTEND(bugprone-macro-parentheses)

#endif
