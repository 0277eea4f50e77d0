/* The group of ranks over which layers may reduce in a pass (dlc_layer_group): all
 * ranks, or the replicas of a pipeline stage.
 *
 * Values travel on an endpoint of their own, beside the exchange of gradients: by a
 * progress engine, or, on a queue whose transport has stream-ordered collectives, by a
 * communicator. A pipeline gives its own engine, whose messages must move on while a
 * rank waits. Owned by a session.
 *
 * Threads: the train thread. */
#ifndef DLC_SESSION_LAYER_GROUP_H
#define DLC_SESSION_LAYER_GROUP_H

#include <dlcore/layer.h>

#include "comm/comm.h"
#include "comm/progress_engine.h"

/* Initialize with {0}. */
typedef struct dlc_session_layer_group {
    dlc_layer_group table;
    int32_t first; /* its first rank among those of the job */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue;                  /* that the layers work on, or NULL */
    dlc_comm *exchange;                /* of gradients, on the same queue */
    dlc_comm *comm;                    /* own; stream-ordered collectives, or NULL */
    dlc_progress_engine *own, *engine; /* `engine`: `own` or the pipeline's; or NULL */
    int32_t pending;                   /* transfers of the engine */
    dlc_memory merges, blocks;
    double seconds; /* spent in all_gather since its reader has reset it */
} dlc_session_layer_group;

/* Before the nets are built: a group of all ranks. A pipeline then names others. */
void dlc_layer_group_plan(int32_t rank, int32_t ranks, dlc_session_layer_group *group);
/* What a training net is built with; NULL: this rank is alone. */
const dlc_layer_group *dlc_layer_group_table(const dlc_session_layer_group *group);

typedef struct dlc_layer_group_args {
    const dlc_comm_args *how;       /* to connect all ranks of the job by */
    const dlc_rank_info *rank_info; /* of the ranks of the group */
    dlc_device *device;             /* that the layers work on */
    dlc_queue *queue;
    dlc_comm *exchange;
    int is_async; /* iterations are submitted to the queue before earlier ones end */
} dlc_layer_group_args;

/* Collective, once all ranks are connected, and those of a pipeline's stages. Opens
 * what collective layers need. On failure the caller still closes the group. */
dlc_status dlc_layer_group_open(const dlc_layer_group_args *args,
                                dlc_session_layer_group *group);
void dlc_layer_group_close(dlc_session_layer_group *group);

/* Why an iteration with these layers, in which gradients are exchanged in that many
 * buckets, can't be captured; NULL: it can. */
const char *dlc_layer_group_capture_obstacle(const dlc_session_layer_group *group,
                                             int32_t buckets);
/* As dlc_comm_poll, for work that waits on the queue. */
dlc_status dlc_layer_group_poll(const dlc_session_layer_group *group);

#endif
