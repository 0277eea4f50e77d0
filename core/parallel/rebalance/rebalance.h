/* [parallel] batch_split = auto in a running job. At the end of each epoch the ranks
 * compare how fast they compute, and how much time each iteration takes apart from
 * that, without the time spent waiting for others. Ranks that may be ahead of each
 * other, and those of pipeline stages, compare more often: after 20 iterations, then
 * each time after twice as many, up to 320. That is soon, but not for every moment that
 * a rank is slow, which is what staleness is for. With any bound on staleness a rank
 * that is always slow would otherwise limit all (Harlap et al., "Addressing the
 * straggler problem for iterative convergent parallel ML", SoCC 2016).
 *
 * If another split would be clearly faster, nets and what depends on them are rebuilt
 * for it, and rebuilt for the previous split if it was not faster after all
 * (dlc_batch_split_verify). Weights, running averages and the solver's state are kept.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_REBALANCE_REBALANCE_H
#define DLC_PARALLEL_REBALANCE_REBALANCE_H

#include "session/session.h"

/* Measurements since the last comparison. */
typedef struct dlc_rebalance {
    dlc_session *session;
    uint64_t began;     /* start of the current iteration, in ns */
    double cpu_began;   /* CPU seconds at that time */
    int32_t first;      /* iterations so far that are not measured */
    double spent;       /* seconds in measured iterations */
    double computed;    /* ... of these, on samples */
    double cpu;         /* CPU seconds in them */
    double waited;      /* seconds waited for others, up to the last comparison */
    int64_t iterations; /* how many were measured */
    int64_t passed;     /* iterations since the last comparison */
    int64_t interval;   /* iterations until the next comparison; 0: at first */
} dlc_rebalance;

/* If the split is to follow measurements, or was left open: opens session->rebalance,
 * which the session frees. */
dlc_status dlc_rebalance_plan(dlc_session *session);
/* With auto, is the split measured before the nets are built? */
int dlc_rebalance_measures_first(const dlc_rebalance *rebalance);

/* Around each iteration; `computed`: seconds of it spent on samples. `waited`: seconds
 * that this rank has waited for others so far, the exchange left out. */
void dlc_rebalance_begin_iteration(dlc_rebalance *rebalance);
void dlc_rebalance_end_iteration(dlc_rebalance *rebalance, double computed,
                                 double waited);
/* Collective, after an iteration: compares throughput if it is time to. *changed: there
 * is a new split, for which the session must be reopened (run/reopen.h). */
dlc_status dlc_rebalance_compare(dlc_rebalance *rebalance, double waited, int *changed);

#endif
