/* The agent: the process that an external launcher has started, while its rank, a child
 * process, runs. It connects to the hub, relays frames between its rank and the hub,
 * sends the hub a heartbeat twice a second and, in the end, how the rank ended; and it
 * ends the rank when the hub is gone. To the hub, agents are what child processes are
 * in a local job. */
#ifndef DLC_JOB_AGENT_H
#define DLC_JOB_AGENT_H

#include <signal.h>

#include "job/activity.h"
#include "job/channel.h"
#include "job/hub/address.h"
#include "job/hub/handshake.h"
#include "job/supervise.h"

/* ---- Joining: connect.c */

/* Attempts that go on until time is up: what is waited for may not be there yet. */
typedef struct dlc_retry {
    int rank;       /* that waits, for messages */
    double timeout; /* seconds */
    uint64_t since; /* the first attempt */
    int pause_ms, has_said;
} dlc_retry;

dlc_retry dlc_retry_start(int rank, double timeout);
/* After a failed attempt, with its reason as the detail: pauses. After a while it says
 * once what is waited for, `what`, and why. 0: time is up. */
int dlc_retry_again(dlc_retry *retry, const char *what);

typedef struct dlc_connect_args {
    const char *host; /* of the hub, whose name may not be known yet, or another's */
    uint16_t port;
    const dlc_address *list; /* without `host`: candidate addresses of the hub */
    int count;
    const dlc_secret *secret;
    int rank, ranks;
    double timeout; /* seconds */
} dlc_connect_args;

/* Retries until the hub admits this rank, refuses it (DLC_ERR_CONFIG, with the reason),
 * or time is up (DLC_ERR_PEER). Blocks. *fd is the caller's; `text` is the address at
 * which the hub was found. */
dlc_status dlc_connect(const dlc_connect_args *args, int *fd,
                       char text[DLC_ADDRESS_TEXT]);

/* ---- Running: agent.c */

typedef struct dlc_agent {
    /* Filled in by the caller; zero is right for all that follows these. */
    int rank;
    pid_t child;                   /* the rank's process */
    pid_t parent;                  /* as in dlc_launch */
    dlc_channel to_rank, to_hub;   /* taken over */
    const char *hub_address;       /* for messages */
    dlc_shared_activity *activity; /* the rank's */
    double hang_timeout;           /* seconds that the hub may be silent; 0: for ever */

    int signals; /* signalfd */
    dlc_heartbeat_last last;
    uint64_t last_sent;  /* when a heartbeat was last sent */
    uint64_t last_heard; /* when anything last came from the hub */
    uint64_t kill_at;    /* when the rank is killed; 0: never */
    int running;
    int hub_lost; /* the hub is gone; the rank was sent the abort notice */
    int done;     /* the hub has sent the exit code */
    int code;
} dlc_agent;

/* Blocks until the rank has ended and the hub has sent the job's exit code. `signals`
 * are blocked; SIGCHLD is among them. */
dlc_status dlc_agent_run(dlc_agent *agent, const sigset_t *signals, int *exit_code);

#endif
