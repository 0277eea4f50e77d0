/* A team: ranks connected by one transport, and the collectives over all of them.
 *
 * Collectives that the transport lacks, or reduces in the wrong order, are built here
 * from its messages (messages.c). A communicator (comm.h) is one team, or one inside
 * each node and one between the nodes.
 *
 * Threads: one at a time. After an error a team can only be closed.
 */
#ifndef DLC_COMM_TEAM_H
#define DLC_COMM_TEAM_H

#include <stdatomic.h>

#include "comm/nodes.h"

/* Becomes the transport's dlc_transport_args. Copied, except for settings and services.
 */
typedef struct dlc_team_args {
    const dlc_feature *feature;
    const dlc_settings *settings;
    int32_t rank, ranks; /* at least 2 ranks */
    const dlc_rank_info *rank_info;
    const dlc_device_ops *device_ops;
    dlc_device *device; /* must stay open longer than the team */
    int any_order;      /* the transport may reduce in an order of its own */
    void *job;
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
    const int32_t *job_rank; /* the number of each rank in the job; NULL: the same */
    /* As in dlc_comm_args. */
    void (*on_progress)(void *progress_context);
    void (*on_wait)(void *progress_context, const char *transport, int32_t rank);
    void *progress_context;
} dlc_team_args;

enum { DLC_TEAM_SETS = 4 };

/* Whom a team waits for, besides a rank. */
enum { DLC_TEAM_ANYONE = -1, DLC_TEAM_NOBODY = -2 };

typedef struct dlc_team {
    const dlc_transport_ops *ops;
    dlc_team_args how;
    dlc_transport_args args; /* as the transport sees them */
    dlc_endpoint *endpoint;
    dlc_nodes nodes;
    int32_t *job_rank;   /* own */
    atomic_int awaited;  /* a rank, or a constant above */
    int reduces;         /* the transport's own reductions may be used */
    int supports_queues; /* ... and its stream-ordered collectives */
    int messages_only;   /* it said that its collectives don't support this team */

    /* For collectives built from messages; allocated on first use. */
    dlc_memory scratch;
    float **chunk;          /* where a rank's contribution is received; two sets */
    const float **sources;  /* the operands of one sum */
    float **node_sum;       /* one per node */
    dlc_request **requests; /* sets of twice as many as there are ranks */
    int32_t *peers;         /* of each request */
    size_t pending[DLC_TEAM_SETS]; /* requests in each set */
} dlc_team;

/* Collective over the team; blocks. */
dlc_status dlc_team_open(const dlc_team_args *args, dlc_team **team);
void dlc_team_close(dlc_team *team); /* NULL is allowed; never waits for a peer */

/* As the dlc_comm_ functions, for counts above 0. */
dlc_status dlc_team_register_buffer(dlc_team *team, const dlc_memory *memory);
dlc_status dlc_team_broadcast(dlc_team *team, int32_t root, void *buffer, size_t bytes);
dlc_status dlc_team_all_reduce(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_team_reduce_scatter(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_team_all_gather(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_team_barrier(dlc_team *team);
dlc_status dlc_team_fused_update(dlc_team *team, float *gradients, float *weights,
                                 size_t count, const dlc_update_range *ranges,
                                 int32_t range_count);

/* Notes whom the next waits of this team are for, which whoever reports a hang wants to
 * know; DLC_TEAM_NOBODY: they are over. */
static inline void dlc_team_await(dlc_team *team, int32_t peer) {
    atomic_store_explicit(&team->awaited, peer, memory_order_relaxed);
}

/* Collectives built from send and recv (messages.c); called by team.c. */
dlc_status dlc_messages_broadcast(dlc_team *team, int32_t root, void *buffer,
                                  size_t bytes);
/* Whether an all-reduce of `count` elements takes one round, in which every rank sends
 * all elements to every other and reduces them, instead of two. */
int dlc_messages_one_round(const dlc_team *team, size_t count);
dlc_status dlc_messages_all_reduce_one_round(dlc_team *team, float *buffer,
                                             size_t count);
dlc_status dlc_messages_reduce_scatter(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_messages_all_reduce(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_messages_all_gather(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_messages_barrier(dlc_team *team);
void dlc_messages_free(dlc_team *team);

#endif
