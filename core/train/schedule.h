/* When and in what pieces gradients are exchanged, and who updates what: as the
 * settings say, or as it measures out. */
#ifndef DLC_TRAIN_SCHEDULE_H
#define DLC_TRAIN_SCHEDULE_H

#include "train/session.h"

typedef struct dlc_schedule {
    size_t bucket; /* bytes */
    int shards;    /* each rank updates a shard of the weights */
    int late;      /* forward goes ahead of sums that it does not need yet */
} dlc_schedule;

/* Are sums, updates and what gives out weights one pass over memory? Once the ranks are
 * joined. */
int dlc_schedule_is_one_pass(const dlc_session *session);

/* All ranks together, when arenas and communicator are there. Rank 0 logs it. */
dlc_status dlc_schedule_make(const dlc_session *session, dlc_schedule *schedule);

#endif
