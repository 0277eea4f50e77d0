/* A team: ranks joined by one transport, and the collectives over all of them.
 *
 * What the transport has no call for, or sums in another order than it should, is
 * built here from its messages (messages.c). A communicator (comm.h) is one team, or
 * one inside each node and one between the nodes.
 *
 * Threads: one at a time. After an error a team is good for closing only.
 */
#ifndef DLC_COMM_TEAM_H
#define DLC_COMM_TEAM_H

#include "comm/nodes.h"

/* What comes of dlc_transport_args; all of it is copied but settings and services. */
typedef struct dlc_team_args {
    const dlc_feature *feature;
    const dlc_settings *settings;
    int32_t rank, ranks; /* at least 2 ranks */
    const dlc_place *places;
    const dlc_device_ops *device_ops;
    dlc_device *device; /* stays open longer than the team */
    int any_order;      /* the transport may sum in an order of its own */
    void *job;
    dlc_status (*allgather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
} dlc_team_args;

typedef struct dlc_team {
    const dlc_feature *feature;
    const dlc_transport_ops *ops;
    dlc_transport_args args; /* as the transport sees them */
    dlc_endpoint *endpoint;
    dlc_nodes nodes;
    int sums;          /* the transport's own sums may be used */
    int queues;        /* ... and its collectives for queues */
    int messages_only; /* it said that its collectives don't serve this team */

    /* For what is built from messages: made when it is needed first. */
    dlc_memory scratch;
    float **piece;          /* where a rank's summand comes to; two sets */
    const float **sources;  /* the summands of one sum */
    const float **node_sum; /* of each node */
    dlc_request **requests; /* two sets of twice as many as there are ranks */
    size_t pending[2];      /* requests in each set */
} dlc_team;

/* All ranks of the team together. */
dlc_status dlc_team_open(const dlc_team_args *args, dlc_team **team);
void dlc_team_close(dlc_team *team); /* NULL allowed; never waits for a peer */

/* As dlc_comm_*, for counts that are not 0. */
dlc_status dlc_team_attach(dlc_team *team, const dlc_memory *memory);
dlc_status dlc_team_broadcast(dlc_team *team, int32_t root, void *buffer, size_t bytes);
dlc_status dlc_team_all_reduce(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_team_reduce_scatter(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_team_all_gather(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_team_barrier(dlc_team *team);

/* Where slice r of `count` elements begins: count * r / ranks. */
static inline size_t dlc_slice(size_t count, int32_t r, int32_t ranks) {
    size_t n = (size_t)ranks, i = (size_t)r;
    return count / n * i + count % n * i / n;
}

/* messages.c */
dlc_status dlc_messages_broadcast(dlc_team *team, int32_t root, void *buffer,
                                  size_t bytes);
/* Everybody sends all to everybody and sums it: one round instead of two. Is it for so
 * many elements? */
int dlc_messages_sum_at_once(const dlc_team *team, size_t count);
dlc_status dlc_messages_all_reduce_at_once(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_messages_reduce_scatter(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_messages_all_gather(dlc_team *team, float *buffer, size_t count);
dlc_status dlc_messages_barrier(dlc_team *team);
void dlc_messages_free(dlc_team *team);

#endif
