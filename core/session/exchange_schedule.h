/* How gradients are exchanged: bucket size, who updates which weights, and whether the
 * next forward overlaps the rest. As [transport] says, or chosen by measurement. Called
 * by the session. */
#ifndef DLC_SESSION_EXCHANGE_SCHEDULE_H
#define DLC_SESSION_EXCHANGE_SCHEDULE_H

#include "session/session.h"

typedef struct dlc_exchange_schedule {
    size_t bucket_bytes; /* the size of a bucket */
    int shard_optimizer; /* each rank updates a shard of the weights (ZeRO-1) */
    int overlap_forward; /* forward begins before reductions that it does not need yet
                          */
} dlc_exchange_schedule;

/* Are reduction, update and all-gather fused into one pass over memory? The ranks must
 * be connected. */
int dlc_exchange_schedule_is_fused(const dlc_session *session, const dlc_comm *comm);

/* Collective. The set's arenas and communicator must exist. Rank 0 logs the choice. */
dlc_status dlc_exchange_schedule_make(const dlc_session *session,
                                      const dlc_param_set *set,
                                      dlc_exchange_schedule *schedule);

#endif
