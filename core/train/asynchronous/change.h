/* [solver], read again while training: SIGUSR1 asks for it. */
#ifndef DLC_TRAIN_CHANGE_H
#define DLC_TRAIN_CHANGE_H

#include "train/session.h"

/* All ranks together, right behind a meeting (asynchronous.h). Rank 0 reads net.ini
 * again; what the command line sets still wins. A mistake in it, or what the solver
 * cannot change any more, is logged and leaves all as it was. */
dlc_status dlc_change_solver(dlc_session *session);

#endif
