/* Ranks for checks of transports: processes that share a board, and the services of a
 * job that a transport needs. */
#ifndef DLC_TOOLS_CONFORMANCE_GROUP_H
#define DLC_TOOLS_CONFORMANCE_GROUP_H

#include <dlcore/transport.h>

#include "bed.h"

enum { GROUP_MOST = 8 };

typedef struct suite_board suite_board; /* what all ranks see */

/* One rank. */
typedef struct suite_member {
    suite_run *run;
    suite_board *board;
    int32_t rank, ranks;
    suite_bed bed;
    dlc_place place[GROUP_MOST];
    dlc_transport_args args;
    const dlc_transport_ops *ops;
    dlc_endpoint *endpoint;
} suite_member;

typedef void suite_body(suite_member *member);

/* Runs `body` in `ranks` processes, each with an open endpoint that is closed behind
 * it; returns when all have ended. Ranks in `lost` (bits) are expected to die. A
 * transport that cannot join these ranks here: a skip. */
void suite_group_play(suite_run *run, int32_t ranks, uint64_t lost, suite_body *body);

/* The same for the score alone: nothing is opened. */
void suite_group_arguments(suite_run *run, int32_t ranks, int32_t nodes,
                           suite_member *member);

/* All ranks together; without the transport. */
void suite_group_barrier(suite_member *member);
/* From now on check fails, on all ranks. */
void suite_group_end_job(suite_member *member);

/* A pause that differs from rank to rank and time to time, up to 2 ms. */
void suite_group_dawdle(const suite_member *member, int32_t turn);

/* Send, receive, and wait for both. */
void suite_group_send(suite_member *member, int32_t peer, dlc_tag tag,
                      const void *buffer, size_t bytes, dlc_request **request);
void suite_group_recv(suite_member *member, int32_t peer, dlc_tag tag, void *buffer,
                      size_t bytes, dlc_request **request);
void suite_group_wait(suite_member *member, dlc_request *request);

#endif
