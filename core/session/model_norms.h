/* Norms of a model that no rank has all of: some of its tensors, or rows of them, are
 * on other ranks. Each rank squares what it has (solver/norms.h); here the squares are
 * added over the ranks, in the order of the ranks, so that all get the same norms.
 *
 * Threads: the train thread. */
#ifndef DLC_SESSION_MODEL_NORMS_H
#define DLC_SESSION_MODEL_NORMS_H

#include "session/session.h"

/* Once the axes are open and before the updates are. Does nothing if each rank has the
 * whole model, or updates need no norms. */
dlc_status dlc_model_norms_open(dlc_session *session);
void dlc_model_norms_close(dlc_session *session);

#endif
