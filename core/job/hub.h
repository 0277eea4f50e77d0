/* The hub: the launching process while its ranks run. It joins collectives, passes
 * signals and the news of a death on, notices who hangs, prints the ranks' output, and
 * decides the job's exit code. One thread, one poll loop, nothing in it blocks on a
 * rank. Ranks are children of it, or remote: children of an agent (agent.h) that has
 * joined over TCP. */
#ifndef DLC_JOB_HUB_H
#define DLC_JOB_HUB_H

#include <sys/types.h>

#include "base/text.h"
#include "job/doing.h"
#include "job/frame.h"
#include "job/gate.h"
#include "job/output.h"
#include "job/rank.h"

/* A rank as the hub sees it. */
typedef struct dlc_peer {
    pid_t pid; /* 0: not started, or not heard of yet */
    char host[64];
    int running; /* from the start of the job, remote ranks too */
    int zombie;  /* ended, not yet waited for */
    int control; /* -1: closed */
    int killed;  /* by the hub: its end is no news */
    dlc_output output;

    int remote;     /* not a child of the hub */
    int joined;     /* its agent is there, or was */
    uint64_t heard; /* when anything came from the agent */

    /* How it gets on: see watch.h. */
    dlc_doing *doing; /* of a child; of a remote rank NULL */
    dlc_pulse_last last;
    dlc_pulse pulse;
    uint64_t moved, worked, alive;
    uint64_t disk; /* when it last waited for a disk */

    /* The frame that is coming in. */
    dlc_frame frame;
    size_t frame_got, payload_got;
    char *payload;     /* where its payload goes; NULL: it is not wanted, or a part */
    dlc_pulse coming;  /* the payload of a pulse */
    int calls;         /* the frame calls a collective: its payload goes to `part` */
    dlc_payload part;  /* what the rank brings to the open collective */
    int called;        /* its part of the open collective is in */
    dlc_status failed; /* what it says that it ends with; DLC_OK: nothing */
    char failure[DLC_FAILURE_TEXT]; /* and why */
    uint64_t stop_time;             /* when it was signalled to stop; 0: not yet */

    /* What is going out: `out`, and the hub's result in between at `result_at`. */
    dlc_text out;
    size_t out_sent;
    int has_result;
    size_t result_at, result_sent;
} dlc_peer;

/* The collective that is being joined. */
typedef struct dlc_call {
    int open;
    int first; /* the rank that came first: the others must agree with it */
    int count; /* how many have called */
    dlc_frame frame;
} dlc_call;

typedef struct dlc_hub {
    int ranks;
    dlc_peer *peer;
    int signals;     /* signalfd; -1 until dlc_hub_run */
    int remotes;     /* there are remote ranks */
    double deadline; /* seconds without progress; 0: for ever */

    /* Remote ranks join here until all are in. */
    dlc_gate *gate; /* NULL: closed */
    uint64_t digest;
    const char *where; /* it stands, for messages */
    uint64_t join_by;  /* then those that are missing are named */
    uint64_t say_at;   /* then it is said who is waited for; 0: it was */
    double rendezvous;

    dlc_call call;
    char *result; /* of the last one; still being sent */
    size_t result_bytes;

    uint64_t beat;     /* when pulses were last taken and sent */
    uint64_t warned;   /* when the stall began that a warning has told of */
    int told;          /* the ranks were told to end */
    uint64_t kill_at;  /* then those left are killed; 0: none */
    uint64_t leave_at; /* then remote ranks left are given up; 0: none */
    int lost;          /* a rank was killed or left others waiting */
    int failure;       /* the highest code of a rank that was not told to end */
    const dlc_peer
        *cause; /* the first that failed for a reason of its own; NULL: none */
    uint64_t
        say_cause_at; /* when others that fail alike have had time; 0: it was said */
    int stop_signal;
    uint64_t stop_time;  /* of the launcher's own */
    uint64_t stopped_at; /* when the job was first asked to stop */
    int killed;          /* by the hub: what dies now dies because of that */
} dlc_hub;

/* ---- hub.c */

/* Until all ranks that were started are gone; sets the job's exit code. */
dlc_status dlc_hub_run(dlc_hub *hub, int *exit_code);
/* What the job ends with, as things stand. */
int dlc_hub_exit_code(const dlc_hub *hub);
/* Kills the ranks that run and waits for them. */
void dlc_hub_kill(dlc_hub *hub);
/* Sends as much of what is queued as the channel takes. */
void dlc_hub_flush(dlc_hub *hub, int rank);
/* Queues a frame for a rank. */
void dlc_hub_send(dlc_hub *hub, int rank, const dlc_frame *frame, const void *payload);
/* What has happened to `rank` that its agent tells, or its own exit: `number` is the
 * exit code or the signal. */
void dlc_hub_ended(dlc_hub *hub, int rank, int by_signal, int number);
/* A remote rank cannot be reached any more, because of `why`. */
void dlc_hub_lose(dlc_hub *hub, int rank, const char *why);
/* Sends the news to end, without the log line. */
void dlc_hub_send_news(dlc_hub *hub, dlc_status status, const char *text);
void dlc_hub_kill_rank(dlc_hub *hub, int rank, int signal);
/* Kills the ranks; the job ends as by that signal, whatever happened before. */
void dlc_hub_end_by_signal(dlc_hub *hub, int signal);
/* Of the launcher or, passed on, of a rank. */
void dlc_hub_signal(dlc_hub *hub, int signal, uint64_t *stop_time);
/* "rank 1 (host x, pid 77)" */
int dlc_hub_name(const dlc_hub *hub, int rank, char *text, size_t room);
/* Tells all ranks to end with `status` and its detail sentence, and logs it. The
 * first cause counts, later ones are ignored. */
void dlc_hub_tell(dlc_hub *hub, dlc_status status, const char *text);

/* ---- read.c */

/* All that has come from a rank. */
void dlc_hub_read(dlc_hub *hub, int rank);

/* ---- join.c */

/* Lets agents in at the gate, which must stay until dlc_hub_run returns. */
void dlc_hub_open_gate(dlc_hub *hub, dlc_gate *gate);
/* The gate's part of a turn; closes it when all are in. */
void dlc_hub_join(dlc_hub *hub, const struct pollfd *polled);
/* Tells the agents how the job ended and waits a moment until they have heard it. */
void dlc_hub_farewell(dlc_hub *hub, int exit_code);

/* ---- watch.c */

/* Takes the pulse of every rank, lets agents hear, and ends the job when a rank makes
 * no progress. Twice a second is often enough. */
void dlc_hub_watch(dlc_hub *hub);
/* A pulse has come, or was taken. */
void dlc_hub_pulse(dlc_hub *hub, int rank, const dlc_pulse *pulse);
/* As if every rank had just moved: nobody could while the hub itself stood still. */
void dlc_hub_watch_anew(dlc_hub *hub);

/* ---- collect.c */

/* A header has come from `rank`: checks it and, for the first of a collective,
 * opens it. False: it was refused, and everybody was told. */
int dlc_hub_call_begin(dlc_hub *hub, int rank);
/* What the rank brings is complete. Sends the result when it was the last. */
void dlc_hub_call_end(dlc_hub *hub, int rank);
/* Tells the ranks if one has ended that others wait for in a collective. */
void dlc_hub_call_check(dlc_hub *hub);

#endif
