/* The sharded parameters of a net: rows of which this rank has its own, in arenas
 * beside those of the parameters that all ranks have. A session gives them slots,
 * averages and an update of their own; without any it has nothing to do.
 *
 * Each rank saw the samples of all ranks that share a layer, so their gradients need no
 * reduction over these, only over ranks that have the same rows. Without such ranks
 * they are updated as in a job of one rank.
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_SHARDED_H
#define DLC_SESSION_SHARDED_H

#include "session/session.h"

/* Allocates the solver's slots. */
dlc_status dlc_sharded_open(dlc_session *session);
/* Opens the update; weights and slots must have their initial values. */
dlc_status dlc_sharded_start(dlc_session *session);
void dlc_sharded_close(dlc_session *session);

/* Backward of micro-batch `index` of an iteration is done; of all: updates the weights.
 */
dlc_status dlc_sharded_ready(dlc_session *session, int32_t index);
dlc_status dlc_sharded_finish(dlc_session *session);

#endif
