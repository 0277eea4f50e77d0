/* The agent: what the process that others have started is while its rank, a child of
 * it, runs. It passes frames on between its rank and the hub, tells the hub twice a
 * second how the rank is and, in the end, how it ended; and it ends the rank when the
 * hub is gone. Agents are to the hub what its own children are. */
#ifndef DLC_JOB_AGENT_H
#define DLC_JOB_AGENT_H

#include <signal.h>
#include <sys/types.h>

#include "job/doing.h"
#include "job/frame.h"

typedef struct dlc_agent_args {
    int rank;
    pid_t child;             /* the rank */
    int control, hub;        /* channels to it and to the hub; taken over */
    const char *hub_address; /* for messages */
    dlc_doing *doing;        /* the rank's */
    double deadline;         /* so long the hub may be silent, seconds; 0: for ever */
    const sigset_t *signals; /* blocked; SIGCHLD among them */
} dlc_agent_args;

/* Until the rank has ended and the hub has told the job's exit code. */
dlc_status dlc_agent_run(const dlc_agent_args *args, int *exit_code);

#endif
