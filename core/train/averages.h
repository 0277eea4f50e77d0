/* Running averages (batch_norm's) over the ranks. Each rank has its own, of the samples
 * that it has seen; where all are to use the same ones, in a test and in a checkpoint,
 * these are the mean, in which each rank counts by its share of the samples. The ranks
 * then go on with their own, so that neither shows in the run.
 *
 * Threads: the train thread. All ranks call each together.
 */
#ifndef DLC_TRAIN_AVERAGES_H
#define DLC_TRAIN_AVERAGES_H

#include "train/session.h"

/* The arena of running averages becomes their mean, for good. */
dlc_status dlc_averages_mean(dlc_session *session);

/* The same, until dlc_averages_end. `own` gets what this rank had, or a base of NULL
 * where there is nothing to put back. */
dlc_status dlc_averages_begin(dlc_session *session, dlc_memory *own);
/* Puts it back and frees it; also behind a failed begin. */
dlc_status dlc_averages_end(dlc_session *session, dlc_memory *own);

#endif
