/* The group of ranks over which layers may reduce in a pass (dlc_layer_group): all
 * ranks, or those that an axis names (the replicas of a pipeline stage).
 *
 * Values travel on an endpoint of their own, beside the exchange of gradients: by a
 * progress engine, or, on a queue whose transport has stream-ordered collectives, by a
 * communicator. An axis may give its own engine, whose messages must move on while a
 * rank waits.
 *
 * Threads: the train thread. */
#ifndef DLC_SESSION_LAYER_GROUP_H
#define DLC_SESSION_LAYER_GROUP_H

#include <dlcore/layer.h>

#include "comm/comm.h"
#include "comm/progress_engine.h"

struct dlc_session;

/* Initialize with {0}. */
typedef struct dlc_session_layer_group {
    dlc_layer_group table;
    int32_t first;                     /* its first rank among those of the job */
    dlc_comm *comm;                    /* own; stream-ordered collectives, or NULL */
    dlc_progress_engine *own, *engine; /* `engine`: `own` or an axis's; or NULL */
    int32_t pending;                   /* transfers of the engine */
    dlc_memory merges, blocks;
    double seconds; /* spent in all_gather since its reader has reset it */
} dlc_session_layer_group;

/* Before the nets are built: who is in the group. */
void dlc_layer_group_plan(struct dlc_session *session);
/* What a training net is built with; NULL: this rank is alone. */
const dlc_layer_group *dlc_layer_group_table(const struct dlc_session *session);
/* Once the training net is built: DLC_ERR_CONFIG if it has a collective layer and ranks
 * may be in different iterations. */
dlc_status dlc_layer_group_check(const struct dlc_session *session);
/* Collective, once all ranks are connected. Opens what collective layers need; does
 * nothing if there are none. */
dlc_status dlc_layer_group_open(struct dlc_session *session);
void dlc_layer_group_close(struct dlc_session *session);

/* Why an iteration with these layers can't be captured; NULL: it can. */
const char *dlc_layer_group_capture_obstacle(const struct dlc_session *session);
/* As dlc_comm_poll, for work that waits on the queue. */
dlc_status dlc_layer_group_poll(const struct dlc_session *session);

#endif
