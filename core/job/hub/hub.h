/* The hub: the launching process while its ranks run. It performs the collectives of
 * the control channel, forwards signals and abort notices, detects hangs, prints the
 * ranks' output, and decides the job's exit code. One thread, one poll loop; nothing in
 * it blocks on a rank. Ranks are its children, or remote: children of an agent
 * (agent.h) that has joined over TCP.
 *
 * Its files; each calls only those below it: hub.c (the loop), join.c,
 * receive.c, watchdog.c, ranks.c, output.c. */
#ifndef DLC_JOB_HUB_H
#define DLC_JOB_HUB_H

#include <sys/types.h>

#include "job/activity.h"
#include "job/channel.h"
#include "job/hub/acceptor.h"
#include "job/job.h"
#include "job/supervise.h"

/* The output of a rank, on its way to stderr: see output.c. */
#define DLC_OUTPUT_ROOM 16384
typedef struct dlc_output {
    int rank;
    int fd; /* non-blocking read end; -1: at its end, or there is none */
    size_t used;
    char buffer[DLC_OUTPUT_ROOM];
} dlc_output;

/* A rank as the hub sees it. */
typedef struct dlc_peer {
    pid_t pid; /* 0: not started, or not yet known */
    char host[64];
    int running; /* from the start of the job, remote ranks too */
    int zombie;  /* ended, not yet waited for */
    int killed_by_hub;
    dlc_output output;

    int remote;          /* not a child of the hub */
    int joined;          /* its agent has connected */
    uint64_t last_heard; /* when anything arrived from the agent */

    /* Its progress: see watchdog.c. */
    dlc_shared_activity *activity; /* of a child; NULL for a remote rank */
    dlc_heartbeat_last last;
    dlc_heartbeat heartbeat;
    uint64_t last_progress, last_busy, last_check, last_wait;
    uint64_t last_disk_wait;

    dlc_channel channel;               /* to the rank, or to its agent */
    int frame_begun;                   /* its header was looked at */
    int frame_wanted;                  /* its payload is kept */
    dlc_payload part;                  /* the rank's contribution to the collective */
    int called;                        /* that contribution is complete */
    dlc_status failed;                 /* what it has reported to end with; or DLC_OK */
    char failure[DLC_FAILURE_TEXT];    /* the reason it gave */
    char withdrawal[DLC_FAILURE_TEXT]; /* the reason why it cannot take part */
    int returned;                      /* from main; 0: not, or it could not say so */
    uint64_t stop_time; /* when it was first signalled to stop; 0: not yet */
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
    dlc_peer *peer;      /* NULL: the hub is not open */
    int signals;         /* signalfd; -1: none */
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

dlc_status dlc_hub_open(int ranks, double hang_timeout, dlc_hub *hub);
/* Closes the hub's descriptors and frees its memory; no rank is notified, killed or
 * waited for. Does nothing to a hub that is not open. */
void dlc_hub_close(dlc_hub *hub);
/* Makes a child a rank of the hub, which takes over its descriptors. */
void dlc_hub_attach_child(dlc_hub *hub, int rank, dlc_rank_process *child,
                          dlc_shared_activity *activity);
/* Blocks until all ranks that were started have ended; sets the job's exit code. */
dlc_status dlc_hub_run(dlc_hub *hub, int *exit_code);
/* Kills the running ranks and waits for them. */
void dlc_hub_kill(dlc_hub *hub);

/* ---- join.c */

/* Lets agents join through `acceptor`, which must live until dlc_hub_run returns. */
void dlc_hub_open_acceptor(dlc_hub *hub, dlc_acceptor *acceptor);
/* Handles the acceptor's events; closes it when all ranks have joined. */
void dlc_hub_accept_agents(dlc_hub *hub, const struct pollfd *polled);
/* The shutdown handshake: sends the agents the job's exit code and waits briefly until
 * they have read it. */
void dlc_hub_shutdown_agents(dlc_hub *hub, int exit_code);

/* ---- receive.c */

/* Reads and handles everything that has arrived from a rank or its agent. */
void dlc_hub_read(dlc_hub *hub, int rank);
/* Checks the header of a collective call from `rank`, and opens the collective if it is
 * the first. 0: it was refused and the job aborted. */
int dlc_hub_call_begin(dlc_hub *hub, int rank);
/* The rank's contribution is complete. Sends the result if it was the last. */
void dlc_hub_call_end(dlc_hub *hub, int rank);

/* ---- watchdog.c */

/* Takes and sends heartbeats, and ends the job when a rank makes no progress. To be
 * called twice a second. */
void dlc_hub_watchdog_check(dlc_hub *hub);
/* Records a heartbeat that was received or taken. */
void dlc_hub_heartbeat(dlc_hub *hub, int rank, const dlc_heartbeat *heartbeat);
/* Restarts all timers, as if every rank had just made progress: nobody could while the
 * hub itself was stopped. */
void dlc_hub_watchdog_reset(dlc_hub *hub);

/* ---- ranks.c */

/* A rank and what it was doing last, for messages. */
typedef struct dlc_rank_words {
    char name[128];                   /* "rank 1 (host x, pid 77)" */
    char activity[DLC_ACTIVITY_TEXT]; /* " during backward conv1", or "" */
} dlc_rank_words;
dlc_rank_words dlc_hub_describe(const dlc_hub *hub, int rank);

/* Queues a frame for a rank. */
void dlc_hub_send(dlc_hub *hub, int rank, const dlc_frame *frame, const void *payload);
/* Sends as much of what is queued as the channel accepts. */
void dlc_hub_flush(dlc_hub *hub, int rank);
/* Aborts the job: tells all ranks to end with `status` and that text, and logs it. Only
 * the first cause counts. */
void dlc_hub_abort(dlc_hub *hub, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without logging it. */
void dlc_hub_send_abort(dlc_hub *hub, dlc_status status, const char *text);
/* Sends a signal to a rank, through its agent if it is remote. */
void dlc_hub_kill_rank(dlc_hub *hub, int rank, int signal);
/* Kills the ranks. */
void dlc_hub_kill_ranks(dlc_hub *hub);
/* Kills the ranks; the job ends as by that signal, whatever happened before. */
void dlc_hub_end_by_signal(dlc_hub *hub, int signal);
/* Handles a signal to the launcher or, forwarded, to a rank; `stop_time` is the
 * receiver's. */
void dlc_hub_signal(dlc_hub *hub, int signal, uint64_t *stop_time);
/* Handles the end of a rank, as its agent reported it or as waitid() did: `number` is
 * the exit code, or the signal if `by_signal`. */
void dlc_hub_rank_ended(dlc_hub *hub, int rank, int by_signal, int number);
/* Handles a remote rank that can no longer be reached; `why` completes the message. */
void dlc_hub_lost_rank(dlc_hub *hub, int rank, const char *why);
/* Logs the cause of the job's failure, once it is known which ranks share it. */
void dlc_hub_log_cause(dlc_hub *hub);
/* "all-gather of 8 bytes", "barrier", "broadcast of 4 bytes from rank 1" */
#define DLC_CALL_TEXT 96
void dlc_hub_call_text(const dlc_frame *call, char text[DLC_CALL_TEXT]);
/* Aborts the job if others wait in a collective for a rank that has ended. */
void dlc_hub_call_check(dlc_hub *hub);
/* What the job would end with now. */
int dlc_hub_exit_code(const dlc_hub *hub);

/* ---- output.c */

/* Whether the pipe is open and there is room to read into. */
int dlc_output_can_read(const dlc_output *output);
/* Reads what is available, as far as it fits; closes the pipe at its end. */
void dlc_output_read(dlc_output *output);
/* Whether there is something to write. */
int dlc_output_can_write(const dlc_output *output);
/* Writes whole lines, in one piece so small that a stderr which poll() calls writable
 * accepts it without blocking. */
void dlc_output_write(dlc_output *output);
/* Writes all that is left, an unfinished line too, and closes the pipe; may block on
 * stderr. */
void dlc_output_finish(dlc_output *output);

#endif
