/* The signals that a job handles, and how long it may take to stop. Called by ranks,
 * the hub and agents. */
#ifndef DLC_JOB_SIGNALS_H
#define DLC_JOB_SIGNALS_H

#include <signal.h>
#include <sys/signalfd.h>

#include "base/status.h"

/* The signals that a job handles. */
void dlc_rank_signals(sigset_t *set);
/* The request (DLC_JOB_...) of a signal after which the job continues; 0 for a stop
 * signal or any other. */
unsigned dlc_signal_request(int signal);

/* Opens a signalfd for signals that the caller has blocked; -1 on failure. `who` is the
 * subject of the sentence. */
dlc_status dlc_signals_open(const sigset_t *signals, const char *who, int *fd);

/* Stop signals to one process within so many seconds count as one: some programs signal
 * a process and then its group (timeout(1)). */
#define DLC_STOP_AGAIN_S 0.2

/* Whether the launcher, *parent, has ended without its processes, which says so and
 * clears it. */
int dlc_launcher_is_gone(pid_t *parent);

/* How long ranks may take to end once they were asked to. */
#define DLC_GRACE_NS 1500000000u

#endif
