/* The point-to-point channel (dlc_p2p_channel) that the core gives to solvers and
 * parallel modes: messages between any two ranks of a job. It has a team and an
 * endpoint of its own, so that messages and the communicator's collectives don't wait
 * for each other.
 *
 * Threads: one at a time; dlc_p2p_cancel may be called from any thread.
 */
#ifndef DLC_COMM_P2P_CHANNEL_H
#define DLC_COMM_P2P_CHANNEL_H

#include <dlcore/consistency.h>

#include "comm/comm.h"

typedef struct dlc_p2p dlc_p2p;

/* Collective over all ranks, at least 2, with the arguments of their communicator. If
 * that has two levels, the channel uses the transport between the nodes for all ranks;
 * DLC_ERR_CONFIG if that transport cannot connect the ranks of one node. */
dlc_status dlc_p2p_open(const dlc_comm_args *args, dlc_p2p **p2p);
/* Abandons operations in flight. NULL is allowed. */
void dlc_p2p_close(dlc_p2p *p2p);

/* The solver's table; valid until close. */
const dlc_p2p_channel *dlc_p2p_table(const dlc_p2p *p2p);

/* Notes the rank that the next waits are for, for reports of a hang. */
void dlc_p2p_await(dlc_p2p *p2p, int32_t peer);

/* Makes the call in progress and all later ones return DLC_ERR_CANCELLED. NULL is
 * allowed. */
void dlc_p2p_cancel(dlc_p2p *p2p);

#endif
