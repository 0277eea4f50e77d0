/* Running averages (batch_norm's) over the ranks. Each rank has its own, of the samples
 * that it has seen; tests and checkpoints use their mean over the ranks, weighted by
 * the batch split. The ranks then continue with their own, so that neither changes the
 * run.
 *
 * Threads: the training thread. All functions are collective. */
#ifndef DLC_SESSION_AVERAGES_H
#define DLC_SESSION_AVERAGES_H

#include "session/session.h"

/* Replaces the running averages by their mean. */
dlc_status dlc_averages_mean(dlc_session *session);

/* Does that until dlc_averages_end. `own` receives this rank's, or a base of NULL where
 * there is nothing to restore. */
dlc_status dlc_averages_begin(dlc_session *session, dlc_memory *own);
/* Restores and frees them; also to be called after a failed begin. */
dlc_status dlc_averages_end(dlc_session *session, dlc_memory *own);

#endif
