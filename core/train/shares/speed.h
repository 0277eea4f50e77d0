/* How fast the ranks are, for [parallel] batch_split = auto: all of them go through a net of
 * their even share at the same time, forward and backward on made-up samples, as they
 * will when they train; then they tell each other and share the batch out accordingly.
 *
 * What is measured differs from run to run, so what comes of it is logged, in a form
 * that [parallel] batch_split takes: with that a run can be repeated to the bit.
 */
#ifndef DLC_TRAIN_SPEED_H
#define DLC_TRAIN_SPEED_H

#include "train/session.h"

/* All ranks together, with a training net of `batch` samples that has its memory and
 * that nobody needs afterwards: its running averages and gradients are made-up; NULL on
 * a rank without samples. Shares the batch out in proportion (dlc_setup.shares) where
 * that gains enough. */
dlc_status dlc_speed_share(dlc_session *session, dlc_net *net, int64_t batch);

/* The same for paces that are known otherwise; this is this rank's, and `seconds` what
 * an iteration took on it, waiting included (0: not known). *changed: the batch has
 * been shared out anew, or as it was before the last time. */
dlc_status dlc_speed_balance(dlc_session *session, dlc_rank_pace pace, double seconds,
                             int *changed);

#endif
