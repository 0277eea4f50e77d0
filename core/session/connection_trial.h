/* Trying what was chosen: a choice of transports is opened and probed, and what fails
 * is kept, for the next choice. Called by connection.c. */
#ifndef DLC_SESSION_CONNECTION_TRIAL_H
#define DLC_SESSION_CONNECTION_TRIAL_H

#include "comm/choose.h"
#include "comm/comm.h"
#include "job/job.h"

typedef struct dlc_connection_trial {
    dlc_job *job;
    dlc_device *device; /* open */
    int may_replace; /* 0: the user named the transports; if one does not open, that is
                        an error */
    int probes;      /* [transport] probe */

    /* What was chosen, and how to open it. */
    const dlc_transport_choice *choice;
    const char *name;
    const dlc_comm_args *how;

    /* Owned, release with dlc_free: what was found out so far. */
    dlc_transport_finding *finding;
    size_t findings;
} dlc_connection_trial;

/* Collective. Opens *comm, which is NULL, and probes it. *again: something new was
 * found, which the next choice must know of. *comm is open if it can be used all the
 * same, otherwise NULL. Rank 0 logs what was found. */
dlc_status dlc_connection_try(dlc_connection_trial *trial, dlc_comm **comm, int *again);

/* Tells the job why this rank cannot open a transport: dlc_detail(). Takes void, to fit
 * dlc_comm_args.on_failure. */
void dlc_connection_withdraw(void *job, dlc_status status);

/* Adds what all ranks have found out, or replaces what is known of the same scope.
 * *again: it is new. Rank 0 logs it. */
dlc_status dlc_connection_trial_add(dlc_connection_trial *trial,
                                    const dlc_transport_finding *what, int *again);

#endif
