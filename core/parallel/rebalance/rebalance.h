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

#include "session/axis.h"

/* The axis: with auto it also measures before the nets are built. */
extern const dlc_axis_ops dlc_batch_split_axis;

#endif
