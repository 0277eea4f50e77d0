/* Solvers whose ranks need not be in the same iteration (without
 * DLC_SOLVER_SYNCHRONOUS): what they need of the loop. Iterations are counted alike on
 * all ranks, so each comes to the next test or checkpoint by itself; there they meet.
 */
#ifndef DLC_TRAIN_ASYNCHRONOUS_H
#define DLC_TRAIN_ASYNCHRONOUS_H

#include "train/session.h"

/* After the solver was asked for its needs: can this job have them? */
dlc_status dlc_asynchronous_check(const dlc_session *session);

/* Opens the mailbox, where the solver asked for it; all ranks together. */
dlc_status dlc_asynchronous_open_mail(dlc_session *session);

/* Until all ranks are behind the iteration that this one is behind, with the same
 * weights; all that was begun here is done. With another solver nothing. */
dlc_status dlc_asynchronous_meet(dlc_session *session);

/* Images a second as one rank sees it, as if all went at its pace -> of all ranks. All
 * ranks together. */
dlc_status dlc_asynchronous_speed(dlc_session *session, double *speed);

#endif
