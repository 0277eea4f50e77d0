/* Whole states of the solver for checkpoints and rebalancing. With sharded updates each
 * rank has only its shards of the slots and of the average of the weights. One state at
 * a time is put together in the arena of the gradients, which is not needed between
 * iterations; all ranks take the same states in the same order.
 *
 * Threads: the train thread, between iterations. */
#ifndef DLC_SESSION_FULL_STATE_H
#define DLC_SESSION_FULL_STATE_H

#include "session/session.h"

/* Does this rank have only shards of each state? */
int dlc_full_state_is_sharded(const dlc_session *session);

/* The states that are taken from here on are written: by every rank, or only by rank 0,
 * from which the others get them (`from_rank_0`). */
void dlc_full_state_write(dlc_session *session, int from_rank_0);

/* Collective if the states are sharded: puts a state together, until the next call;
 * what was written to the one before is kept. */
dlc_status dlc_full_state_take(dlc_session *session, int32_t state);
/* The arena that a parameter's part of a state, once it was taken, is in. */
float *dlc_full_state_arena(const dlc_session *session, int32_t param, int32_t state);

/* Collective if the states are sharded: keeps what was written last and clears the
 * gradients. No state may be taken yet. */
dlc_status dlc_full_state_end(dlc_session *session);

#endif
