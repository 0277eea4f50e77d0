/* The hub: the launching process while its ranks run. It performs the collectives of
 * the control channel, forwards signals and abort notices, detects hangs, prints the
 * ranks' output, and decides the job's exit code. One thread, one poll loop; nothing in
 * it blocks on a rank. Ranks are its children, or remote: children of an agent
 * (agent.h) that has joined over TCP. Opened and run by launch.c and external_run.c. */
#ifndef DLC_JOB_HUB_H
#define DLC_JOB_HUB_H

#include <sys/types.h>

#include "base/text.h"
#include "job/acceptor.h"
#include "job/activity.h"
#include "job/frame.h"
#include "job/output.h"

/* A rank as the hub sees it. */
typedef struct dlc_peer {
    pid_t pid; /* 0: not started, or not yet known */
    char host[64];
    int running; /* from the start of the job, remote ranks too */
    int zombie;  /* ended, not yet waited for */
    int control; /* -1: closed */
    int killed_by_hub;
    dlc_output output;

    int remote;          /* not a child of the hub */
    int joined;          /* its agent has connected */
    uint64_t last_heard; /* when anything arrived from the agent */

    /* Its progress: see hub_watchdog.c. */
    dlc_shared_activity *activity; /* of a child; NULL for a remote rank */
    dlc_heartbeat_last last;
    dlc_heartbeat heartbeat;
    uint64_t last_progress, last_busy, last_check, last_wait;
    uint64_t last_disk_wait;

    /* The frame that is being received. */
    dlc_frame frame;
    size_t frame_got, payload_got;
    char *payload; /* where its payload goes; NULL: to `part`, or it is discarded */
    dlc_heartbeat incoming; /* the payload of a heartbeat */
    int in_call;       /* the frame calls a collective: its payload goes to `part` */
    dlc_payload part;  /* the rank's contribution to the open collective */
    int called;        /* that contribution is complete */
    dlc_status failed; /* the status it has reported to end with; DLC_OK: none */
    char failure[DLC_FAILURE_TEXT];    /* the reason it gave */
    char withdrawal[DLC_FAILURE_TEXT]; /* the reason why it cannot take part */
    int returned;                      /* from main; 0: not, or it could not say so */
    uint64_t stop_time; /* when it was first signalled to stop; 0: not yet */

    /* What is being sent: `out`, with the hub's result inserted at `result_at`. */
    dlc_text out;
    size_t out_sent;
    int has_result;
    size_t result_at, result_sent;
} dlc_peer;

/* The collective that ranks are calling. */
typedef struct dlc_call {
    int open;
    int first; /* the rank that called first: the others must agree with it */
    int count; /* how many have called */
    dlc_frame frame;
} dlc_call;

typedef struct dlc_hub {
    int ranks;
    dlc_peer *peer;
    int signals;         /* signalfd; -1 until dlc_hub_run */
    pid_t parent;        /* as in dlc_launch */
    int remotes;         /* there are remote ranks */
    double hang_timeout; /* seconds without progress; 0: for ever */

    /* Remote ranks join here until all have. */
    dlc_acceptor *acceptor;     /* NULL: closed */
    const char *listen_address; /* for messages */
    uint64_t join_by; /* when missing ranks become an error; like all deadlines of the
                       * hub by dlc_awake_ns */
    uint64_t report_missing_at; /* when to log which are missing; 0: it was logged */
    double rendezvous_timeout;

    dlc_call call;
    char *result; /* of the last one; still being sent */
    size_t result_bytes;

    uint64_t last_heartbeat; /* when heartbeats were last taken and sent */
    uint64_t last_work;      /* when a rank was last seen computing */
    uint64_t warned_stall;   /* when the stall began that was warned about */
    int aborting;            /* the ranks were told to end */
    uint64_t kill_at;        /* when those that still run are killed; 0: never */
    uint64_t abandon_at;     /* when remote ranks are no longer waited for; 0: never */
    int lost;              /* a rank was killed, or ended while others waited for it */
    int failure;           /* the highest exit code before the job was aborted */
    const dlc_peer *cause; /* the first that failed for its own reason; NULL: none */
    uint64_t report_cause_at; /* when to log it: others may fail alike; 0: logged */
    int stop_signal;
    uint64_t stop_time;  /* when the launcher itself was signalled */
    uint64_t stopped_at; /* when the job was first asked to stop */
    int killed;          /* by the hub: deaths from here on are its own doing */
} dlc_hub;

/* ---- hub.c */

/* Blocks until all ranks that were started have ended; sets the job's exit code. */
dlc_status dlc_hub_run(dlc_hub *hub, int *exit_code);
/* What the job would end with now. */
int dlc_hub_exit_code(const dlc_hub *hub);
/* Kills the running ranks and waits for them. */
void dlc_hub_kill(dlc_hub *hub);
/* Sends as much of what is queued as the channel accepts. */
void dlc_hub_flush(dlc_hub *hub, int rank);
/* Queues a frame for a rank. */
void dlc_hub_send(dlc_hub *hub, int rank, const dlc_frame *frame, const void *payload);
/* Handles the end of a rank, as its agent reported it or as waitid() did: `number` is
 * the exit code, or the signal if `by_signal`. */
void dlc_hub_rank_ended(dlc_hub *hub, int rank, int by_signal, int number);
/* Handles a remote rank that can no longer be reached; `why` completes the message. */
void dlc_hub_lost_rank(dlc_hub *hub, int rank, const char *why);
/* Sends the abort notice to all ranks, without logging it; only the first one counts.
 */
void dlc_hub_send_abort(dlc_hub *hub, dlc_status status, const char *text);
/* Sends a signal to a rank, through its agent if it is remote. */
void dlc_hub_kill_rank(dlc_hub *hub, int rank, int signal);
/* Kills the ranks; the job ends as by that signal, whatever happened before. */
void dlc_hub_end_by_signal(dlc_hub *hub, int signal);
/* Handles a signal to the launcher or, forwarded, to a rank; `stop_time` is the
 * receiver's. */
void dlc_hub_signal(dlc_hub *hub, int signal, uint64_t *stop_time);
/* Writes "rank 1 (host x, pid 77)"; returns its length. */
int dlc_hub_name(const dlc_hub *hub, int rank, char *text, size_t room);
/* Aborts the job: tells all ranks to end with `status` and `text`, and logs it. Only
 * the first cause counts. */
void dlc_hub_abort(dlc_hub *hub, dlc_status status, const char *text);

/* ---- hub_read.c */

/* Reads and handles everything that has arrived from a rank or its agent. */
void dlc_hub_read(dlc_hub *hub, int rank);

/* ---- hub_join.c */

/* Lets agents join through `acceptor`, which must live until dlc_hub_run returns. */
void dlc_hub_open_acceptor(dlc_hub *hub, dlc_acceptor *acceptor);
/* Handles the acceptor's events; closes it when all ranks have joined. */
void dlc_hub_accept_agents(dlc_hub *hub, const struct pollfd *polled);
/* The shutdown handshake: sends the agents the job's exit code and waits briefly until
 * they have read it. */
void dlc_hub_shutdown_agents(dlc_hub *hub, int exit_code);

/* ---- hub_watchdog.c */

/* Takes and sends heartbeats, and ends the job when a rank makes no progress. To be
 * called twice a second. */
void dlc_hub_watchdog_check(dlc_hub *hub);
/* Records a heartbeat that was received or taken. */
void dlc_hub_heartbeat(dlc_hub *hub, int rank, const dlc_heartbeat *heartbeat);
/* Restarts all timers, as if every rank had just made progress: nobody could while the
 * hub itself was stopped. */
void dlc_hub_watchdog_reset(dlc_hub *hub);

/* ---- hub_collectives.c */

/* Checks the header of a collective call from `rank`, and opens the collective if it is
 * the first. 0: it was refused and the job aborted. */
int dlc_hub_call_begin(dlc_hub *hub, int rank);
/* The rank's contribution is complete. Sends the result if it was the last. */
void dlc_hub_call_end(dlc_hub *hub, int rank);
/* Aborts the job if others wait in a collective for a rank that has ended. */
void dlc_hub_call_check(dlc_hub *hub);

#endif
