/* The agent: the process that an external launcher has started, while its rank, a child
 * process, runs. It relays frames between its rank and the hub, sends the hub a
 * heartbeat twice a second and, in the end, how the rank ended; and it ends the rank
 * when the hub is gone. To the hub, agents are what child processes are in a local job.
 * Called by external_run.c for every rank but 0. */
#ifndef DLC_JOB_AGENT_H
#define DLC_JOB_AGENT_H

#include <signal.h>
#include <sys/types.h>

#include "job/activity.h"
#include "job/frame.h"

typedef struct dlc_agent_args {
    int rank;
    pid_t child;                   /* the rank's process */
    pid_t parent;                  /* as in dlc_launch */
    int control, hub;              /* channels to the rank and to the hub; taken over */
    const char *hub_address;       /* for messages */
    dlc_shared_activity *activity; /* the rank's */
    double hang_timeout;           /* seconds that the hub may be silent; 0: for ever */
    const sigset_t *signals;       /* blocked; SIGCHLD among them */
} dlc_agent_args;

/* Blocks until the rank has ended and the hub has sent the job's exit code. */
dlc_status dlc_agent_run(const dlc_agent_args *args, int *exit_code);

#endif
