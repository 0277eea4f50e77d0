/* What the supervisors of a job have in common: the hub (hub/hub.c), the agent of an
 * external rank (hub/agent.c), `dlcore node` on a host (launch/remote_node.c) and the
 * command that has started it (launch/remote_launch.c). Each of them blocks its
 * signals, reads them from a signalfd in its poll loop, passes them on, notices the
 * ends of its children, and kills those that take too long to end. Ranks use the part
 * about signals.
 *
 * The way of a SIGTERM, wherever it arrives, leads to the hub, and from there to all
 * ranks:
 *
 *   dlcore --hosts  writes a byte to standard input of the first host's dlcore node
 *   dlcore node     signals the process of its first rank, which is a hub or an agent
 *   agent           sends the hub a DLC_FRAME_SIGNAL
 *   rank            sends the hub a DLC_FRAME_SIGNAL, through its agent if it has one
 *   hub             sends all ranks a DLC_FRAME_REQUEST, and kills them if asked again
 *                   (dlc_hub_signal)
 *   rank            gives it to the training loop, which stops (dlc_job_requests)
 *
 * The only rank of a job does itself what the hub does for several. */
#ifndef DLC_JOB_SUPERVISE_H
#define DLC_JOB_SUPERVISE_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* ---- Signals */

/* The signals that a job handles. */
void dlc_rank_signals(sigset_t *set);
/* The request (DLC_JOB_...) of a signal after which the job continues; 0 for a stop
 * signal or any other. */
unsigned dlc_signal_request(int signal);

/* Opens a signalfd for signals that the caller has blocked; -1 on failure. `who` is the
 * subject of the sentence. */
dlc_status dlc_signals_open(const sigset_t *signals, const char *who, int *fd);
/* The next signal that has arrived; 0: none. */
int dlc_signals_next(int fd);

/* What a signal to stop means to the process that gets it. */
typedef enum dlc_stop {
    DLC_STOP_FIRST,
    DLC_STOP_SAME, /* some programs signal a process and then its group (timeout(1)), so
                      two signals within 0.2 s are one request */
    DLC_STOP_AGAIN /* the user does not want to wait */
} dlc_stop;
/* *first is when that process got its first one; 0: this is it. */
dlc_stop dlc_stop_count(uint64_t *first);

/* Whether the launcher, *parent, has ended without its processes, which says so and
 * clears it. */
int dlc_launcher_is_gone(pid_t *parent);

/* ---- Children */

/* How long ranks may take to end once they were asked to. */
#define DLC_GRACE_NS 1500000000u

/* A rank as the process that has forked it sees it. */
typedef struct dlc_rank_process {
    pid_t pid;   /* 0: none */
    int control; /* the parent's end of the control channel; own; -1: none */
    int output;  /* the read end of the output pipe, non-blocking; own; -1: none */
} dlc_rank_process;

/* How a process has ended. */
typedef struct dlc_ending {
    int by_signal;
    int number; /* the signal, or the exit code */
} dlc_ending;

/* Whether a child has ended; it stays a zombie. Does not block. */
int dlc_process_has_ended(pid_t pid, dlc_ending *ending);
/* Waits until a child has ended, and removes it. */
dlc_ending dlc_process_wait(pid_t pid);

/* ---- Loops */

/* The milliseconds until the earliest of these moments of dlc_awake_ns, as poll() takes
 * them; 0 stands for no moment. */
int dlc_poll_until(const uint64_t *moments, int count);

/* Closes a descriptor, if there is one, and sets it to -1. */
void dlc_close(int *fd);
/* This machine's name. */
void dlc_host_name(char *text, size_t room);

#endif
