/* The hub: the launching process while its ranks run. It joins collectives, passes
 * signals and the news of a death on, prints the ranks' output, and decides the
 * job's exit code. One thread, one poll loop, nothing in it blocks on a rank. */
#ifndef DLC_JOB_HUB_H
#define DLC_JOB_HUB_H

#include <sys/types.h>

#include "base/text.h"
#include "job/frame.h"
#include "job/output.h"
#include "job/rank.h"

/* A rank as the hub sees it. */
typedef struct dlc_peer {
    pid_t pid; /* 0: not started */
    int running;
    int zombie;  /* ended, not yet waited for */
    int control; /* -1: closed */
    dlc_doing *doing;
    dlc_output output;

    /* The frame that is coming in. */
    dlc_frame frame;
    size_t frame_got, payload_got;
    int accepted;       /* the payload is wanted, not to be thrown away */
    int called;         /* its part of the open collective is in */
    uint64_t stop_time; /* when it was signalled to stop; 0: not yet */

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
    char *buffer; /* the result grows here */
    size_t bytes;
} dlc_call;

typedef struct dlc_hub {
    int ranks;
    dlc_peer *peer;
    char host[64];
    int signals; /* signalfd; -1 until dlc_hub_run */

    dlc_call call;
    char *result; /* of the last one; still being sent */
    size_t result_bytes;

    int told;          /* the ranks were told to end */
    uint64_t deadline; /* then those left are killed; 0: none */
    int lost;          /* a rank was killed or left others waiting */
    int failure;       /* the highest code of a rank that was not told to end */
    int stop_signal;
    uint64_t stop_time; /* of the launcher's own */
    int killed;         /* by the hub: what dies now dies because of that */
} dlc_hub;

/* ---- hub.c */

/* Until all ranks that were started are gone; sets the job's exit code. */
dlc_status dlc_hub_run(dlc_hub *hub, int *exit_code);
/* Kills the ranks that run and waits for them. */
void dlc_hub_kill(dlc_hub *hub);
/* Queues a frame for a rank. */
void dlc_hub_send(dlc_hub *hub, int rank, const dlc_frame *frame, const void *payload);
/* Tells all ranks to end with `status` and its detail sentence, and logs it. The
 * first cause counts, later ones are ignored. */
void dlc_hub_tell(dlc_hub *hub, dlc_status status, const char *text);

/* ---- collect.c */

/* A header has come from `rank`: checks it and, for the first of a collective,
 * makes room. False: it was refused, and everybody was told. */
int dlc_hub_call_begin(dlc_hub *hub, int rank);
/* Where that rank's payload goes. */
char *dlc_hub_call_buffer(dlc_hub *hub, int rank);
/* The payload is complete. Sends the result when it was the last. */
void dlc_hub_call_end(dlc_hub *hub, int rank);
/* Tells the ranks if one has ended that others wait for in a collective. */
void dlc_hub_call_check(dlc_hub *hub);

#endif
