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

#include <dlcore/device.h>

#include "comm/exchange.h"
#include "session/replicas.h"
#include "solver/ema.h"
#include "solver/local_update.h"
#include "solver/slots.h"

struct dlc_session;

/* Initialize with {0}. */
typedef struct dlc_sharded {
    dlc_memory slot[DLC_MAX_STATES];
    dlc_ema ema;
    /* Of the ranks with the same rows, set by an axis; NULL: only this one has them. */
    dlc_comm *comm;
    dlc_replicas replicas;
    dlc_exchanger *exchanger;
    dlc_local_update update;
} dlc_sharded;

/* Allocates the solver's slots. */
dlc_status dlc_sharded_open(struct dlc_session *session);
/* Opens the update; weights and slots must have their initial values. */
dlc_status dlc_sharded_start(struct dlc_session *session);
void dlc_sharded_close(struct dlc_session *session);

/* Backward of micro-batch `index` of an iteration is done; of all: updates the weights.
 */
dlc_status dlc_sharded_ready(struct dlc_session *session, int32_t index);
dlc_status dlc_sharded_finish(struct dlc_session *session);

#endif
