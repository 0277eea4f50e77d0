/* The rank of an external launch, and the steps that all kinds of launch take:
 * listening as the hub, finding it as an agent, and running as either. Called by
 * external_run.c and external_pmix.c. */
#ifndef DLC_JOB_EXTERNAL_RANK_H
#define DLC_JOB_EXTERNAL_RANK_H

#include "job/address.h"
#include "job/external.h"
#include "job/launch.h"

typedef struct dlc_external_rank {
    dlc_launch *launch;
    const dlc_external *external;
    double timeout; /* of the rendezvous, in seconds */
    dlc_secret secret;
    int rank, ranks;
    int hub_fd;                         /* an agent's connection; -1: none */
    char hub_address[DLC_ADDRESS_TEXT]; /* the hub's address, for messages */
    dlc_hub hub;                        /* rank 0's; not open: peer is NULL */
    dlc_acceptor acceptor;
    dlc_child child;
} dlc_external_rank;

/* How to fork the rank; the child closes what only this process needs. */
dlc_spawn dlc_external_rank_spawn(dlc_external_rank *self);
/* Closes the hub and the connections. */
void dlc_external_rank_close(void *self);

/* ---- Rank 0: the hub */

/* Listens at this host's address; at all addresses of this machine where others could
 * not reach that one. DLC_ERR_CONFIG without a secret, off loopback. */
dlc_status dlc_external_rank_listen_at(dlc_external_rank *self, const char *host);
/* Listens at all addresses of this machine. DLC_ERR_CONFIG without a secret. */
dlc_status dlc_external_rank_listen_anywhere(dlc_external_rank *self);
/* Makes a secret, listens where the other ranks can reach this hub (on loopback if all
 * of them are on this machine, `local_ranks` being those that are) and gives both as a
 * text without blanks, for whatever publishes it. */
dlc_status dlc_external_rank_publish(dlc_external_rank *self, int local_ranks,
                                     dlc_text *text);
dlc_status dlc_external_rank_open_hub(dlc_external_rank *self);
/* Blocks until the job has ended. The hub's own rank must be running. */
dlc_status dlc_external_rank_run_hub(dlc_external_rank *self, int *exit_code);

/* ---- Other ranks: the agent */

/* Connects to the hub at that host, or (NULL) at one of its addresses. */
dlc_status dlc_external_rank_find_hub(dlc_external_rank *self, const char *host,
                                      const dlc_address *list, int count);
/* Takes secret and addresses from a published text, which it cuts into pieces, and
 * connects. */
dlc_status dlc_external_rank_find_published(dlc_external_rank *self, char *text);
/* Blocks until the job has ended. Takes over the child and the connection. */
dlc_status dlc_external_rank_run_agent(dlc_external_rank *self, int *exit_code);

/* ---- PMIx: external_pmix.c */

/* Runs the rank; blocks until the job has ended. */
dlc_status dlc_external_run_by_pmix(dlc_external_rank *self, int *exit_code);

#endif
