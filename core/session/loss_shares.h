/* How much the parts of a batch weigh in the losses: what counts in a part, of what
 * counts in the whole iteration, over all ranks, accumulation steps and micro-batches.
 * So training minimizes the mean over everything that counts, however the batch is
 * divided, and whichever labels are missing or ignored.
 *
 * What counts is known from labels and targets, before a pass (dlc_layer_ops.count).
 * Each rank counts its samples some iterations ahead; the sums over the ranks travel as
 * control words, so they cost no message. With bounded staleness they are those that
 * have arrived.
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_LOSS_SHARES_H
#define DLC_SESSION_LOSS_SHARES_H

#include <stdint.h>

#include "base/status.h"
#include "net/net.h"

struct dlc_session;

/* The batches that the feed has to keep for this; 0: nothing is counted. */
int32_t dlc_loss_shares_ahead(const struct dlc_session *session);

/* Collective: counts the iterations that come first. */
dlc_status dlc_loss_shares_open(struct dlc_session *session);
void dlc_loss_shares_close(struct dlc_session *session);

/* `write` puts what counts on this rank in a later iteration into the control words of
 * the iteration that begins; `read` takes the sums over the ranks from the control
 * words of the oldest iteration in flight. */
dlc_status dlc_loss_shares_write(struct dlc_session *session,
                                 float words[DLC_CONTROL_WORDS]);
void dlc_loss_shares_read(struct dlc_session *session,
                          const float words[DLC_CONTROL_WORDS]);

/* What counts for loss `i` of the net in samples [first, first + samples) of this
 * rank's batch of this number, as a part of the iteration that the batch is of. */
double dlc_loss_share(const struct dlc_session *session, int32_t i, int64_t batch,
                      int64_t first, int64_t samples);
/* Makes backward of these samples weigh the losses by their shares. */
void dlc_loss_shares_set(struct dlc_session *session, int64_t batch, int64_t first,
                         int64_t samples);
/* Does all of this rank's batch weigh as much as if every sample counted alike? */
int dlc_loss_shares_are_plain(const struct dlc_session *session, int64_t batch);

#endif
