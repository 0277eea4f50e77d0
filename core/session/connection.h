/* The connection of a job's ranks: the machines are gathered, levels and transports are
 * chosen, the choice is logged, and a communicator over all ranks is opened. Owned by
 * the session. */
#ifndef DLC_SESSION_CONNECTION_H
#define DLC_SESSION_CONNECTION_H

#include "comm/choose.h"
#include "comm/comm.h"
#include "config/config.h"
#include "job/machines.h"

typedef struct dlc_connection_args {
    const dlc_registry *registry;
    const char *wanted;           /* "auto", "A", "A+B" */
    const dlc_settings *settings; /* of the transports that `wanted` names */
    const dlc_feature *device_feature;
    dlc_device *device; /* open, for the scores */
    dlc_device_args device_args;
    dlc_job *job;
    double
        bytes; /* of gradients that this rank reduces in an iteration; 0: not known */
    int any_order;           /* dlc_comm_args.any_order */
    int32_t tagged_messages; /* dlc_transport_args.tagged_messages */
} dlc_connection_args;

/* Start with {0}. */
typedef struct dlc_connection {
    dlc_topo topo;       /* own; of all machines, with the ranks; empty: not known */
    dlc_domains domains; /* own; of the ranks */
    int has_racks;       /* which machines share one is known, or cannot be found out */
    dlc_comm *comm;
    dlc_comm_args how; /* what `comm` was opened with, to open others like it */
    char *transport;   /* own; "shm+tcp"; "none" with one rank */
    double predicted;  /* seconds that an iteration's reductions take; 0: not known */
    dlc_settings *
        *made; /* own; default settings of transports that net.ini doesn't name */
    size_t count;
} dlc_connection;

/* Collective: all ranks call it. Rank 0 logs the choice with its reasons. On failure
 * the connection is closed. */
dlc_status dlc_connection_open(const dlc_connection_args *args,
                               dlc_connection *connection);
void dlc_connection_close(dlc_connection *connection); /* a zeroed one is allowed */

#endif
