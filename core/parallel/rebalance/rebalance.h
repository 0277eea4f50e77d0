/* [parallel] batch_split = auto in a running job. At the end of each epoch the ranks
 * compare how fast they compute, and how much time each iteration takes apart from
 * that, without the time spent waiting for others. Ranks that may be ahead of each
 * other compare more often: after 20 iterations, then each time after twice as many, up
 * to 320. That is soon, but not for every moment that a rank is slow, which is what
 * staleness is for. With any bound on staleness a rank that is always slow would
 * otherwise limit all (Harlap et al., "Addressing the straggler problem for iterative
 * convergent parallel ML", SoCC 2016).
 *
 * If another split would be clearly faster, nets and what depends on them are rebuilt
 * for it, and rebuilt for the previous split if it was not faster after all
 * (dlc_batch_split_verify). Weights, running averages and the solver's state are kept.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_REBALANCE_REBALANCE_H
#define DLC_PARALLEL_REBALANCE_REBALANCE_H

#include "session/session.h"

/* Measurements since the last comparison. Initialize with {0}. */
typedef struct dlc_rebalance {
    uint64_t began;     /* start of the current iteration, in ns */
    double cpu_began;   /* CPU seconds at that time */
    int32_t first;      /* iterations so far that are not measured */
    double spent;       /* seconds in measured iterations */
    double computed;    /* ... of these, on samples */
    double cpu;         /* CPU seconds in them */
    double waited;      /* seconds waited for others, up to the last comparison */
    int64_t iterations; /* how many were measured */
    int64_t interval;   /* iterations until the next comparison; 0: at first */
} dlc_rebalance;

/* Around each iteration; `computed`: seconds of it spent on samples. Do nothing where
 * the split cannot change. */
void dlc_rebalance_begin(dlc_rebalance *rebalance, const dlc_session *session);
void dlc_rebalance_end(dlc_rebalance *rebalance, const dlc_session *session,
                       double computed);

/* Is it time to compare, after the session's iteration? Equal on all ranks. */
int dlc_rebalance_is_due(const dlc_rebalance *rebalance, const dlc_session *session);
/* Collective, after the same iteration on all ranks. *changed: there is a new split,
 * and dlc_rebalance_run must follow. */
dlc_status dlc_rebalance_compare(dlc_rebalance *rebalance, dlc_session *session,
                                 int *changed);
/* Collective, with no iteration in flight: reopens the session with the new split. The
 * caller must have closed what points to its nets and feeds. */
dlc_status dlc_rebalance_run(dlc_session *session);

#endif
