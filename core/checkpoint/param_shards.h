/* Tells a session's checkpoints which parameters, or rows of them, this rank has where
 * no rank has all. Called by pipelines and tensor groups, which divide the net. */
#ifndef DLC_CHECKPOINT_PARAM_SHARDS_H
#define DLC_CHECKPOINT_PARAM_SHARDS_H

#include "checkpoint/shards.h"
#include "session/session.h"

/* Collective, once the slots are open. Sets session->shards, unless it is set. `p2p`:
 * of all ranks; nobody else uses it between iterations. */
dlc_status dlc_param_shards_open(dlc_session *session, dlc_progress_engine *engine);
/* While `engine` is still open; again is allowed. */
void dlc_param_shards_close(dlc_session *session);

#endif
