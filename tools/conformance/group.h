/* Groups of ranks for the checks of transports: processes that share memory, with the
 * job services (out-of-band all-gather, check) that a transport needs. */
#ifndef DLC_TOOLS_CONFORMANCE_GROUP_H
#define DLC_TOOLS_CONFORMANCE_GROUP_H

#include <dlcore/transport.h>

#include "device_fixture.h"

enum { GROUP_MOST = 8 };

typedef struct group_state group_state; /* memory that all ranks share */

/* One rank of a group, in its own process. */
typedef struct suite_member {
    suite_run *run;
    group_state *state;
    int32_t rank, ranks;
    device_fixture device;
    dlc_rank_info rank_info[GROUP_MOST];
    dlc_transport_args args;
    const dlc_transport_ops *ops;
    dlc_endpoint *endpoint; /* NULL: the body has closed it */
    int64_t checks;         /* calls of args.check in this rank */
} suite_member;

typedef void suite_body(suite_member *member);

/* Runs `body` in `ranks` processes, each with an open endpoint that is closed
 * afterwards; returns when all have ended. The ranks of the bit set `lost` are expected
 * to die. Skips the check if the transport cannot connect these ranks here. */
void suite_group_play(suite_run *run, int32_t ranks, uint64_t lost, suite_body *body);

/* Fills in `member` with the arguments of predict, without opening anything. */
void suite_group_arguments(suite_run *run, int32_t ranks, int32_t nodes,
                           suite_member *member);

/* Waits for all ranks of the group, without using the transport. */
void suite_group_barrier(suite_member *member);

/* Sleeps for up to 2 ms, a time that differs between ranks and between calls. */
void suite_group_delay(const suite_member *member, int32_t turn);

/* Allocates at least `bytes` bytes of zeroed device memory with zeros after them, which
 * stays until the process ends. */
unsigned char *suite_group_bytes(const suite_member *member, size_t bytes);

/* Call the transport and fail the check if it returns an error. */
void suite_group_send(suite_member *member, int32_t peer, dlc_tag tag,
                      const void *buffer, size_t bytes, dlc_request **request);
void suite_group_recv(suite_member *member, int32_t peer, dlc_tag tag, void *buffer,
                      size_t bytes, dlc_request **request);
void suite_group_wait(suite_member *member, dlc_request *request);

#endif
