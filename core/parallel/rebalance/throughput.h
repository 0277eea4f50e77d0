/* Measures the throughput of the ranks for [parallel] batch_split = auto: all ranks run
 * passes of a net with an equal part of the batch at the same time, forward and
 * backward on made-up samples; then they exchange the results and split the batch
 * accordingly.
 *
 * Measurements differ from run to run, so the split is logged in the form that
 * [parallel] batch_split accepts; with that the run can be repeated bitwise
 * identically. */
#ifndef DLC_PARALLEL_REBALANCE_THROUGHPUT_H
#define DLC_PARALLEL_REBALANCE_THROUGHPUT_H

#include "session/session.h"

/* Collective. `net`: a training net of `batch` samples with its memory, not to be used
 * afterwards, because its running averages and gradients are of made-up samples; NULL
 * on a rank without samples. Changes dlc_setup.batch_split if that gains enough. */
dlc_status dlc_throughput_measure(dlc_session *session, dlc_net *net, int64_t batch);

/* Collective. Balances by a throughput that was measured elsewhere: `mine` is this
 * rank's, `seconds` what an iteration took on it, waiting included (0: unknown).
 * *changed: there is a new split, or the previous one was restored. */
dlc_status dlc_throughput_balance(dlc_session *session, dlc_rank_throughput throughput,
                                  double seconds, int *changed);

#endif
