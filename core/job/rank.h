/* A rank's side of the job: opens and closes the object behind dlc_job. Called in the
 * rank's process by spawn.c, or by launch.c where it is the only rank. */
#ifndef DLC_JOB_RANK_H
#define DLC_JOB_RANK_H

#include <signal.h>

#include "job/activity.h"
#include "job/job.h"
#include "topology/cores.h"

typedef struct dlc_rank_args {
    int rank, ranks;
    int threads; /* compute threads; 0: one for each core of its share */
    int control; /* the control channel; -1: the only rank of a job has none */
    dlc_shared_activity *activity; /* this rank's */
    double hang_timeout; /* seconds: with a channel, for how long the parent may be
                          * unresponsive; without, as in dlc_job_options. 0: for ever */
    int local_rank;      /* among the ranks of its machine; -1: to be counted */
    const char *device;
    const int32_t *device_index; /* as in dlc_job_options */
    int devices;
    const dlc_cores *cores; /* that this process may use; needed while opening */
    int unbound;
} dlc_rank_args;

/* Creates the job object, exchanges rank infos with the other ranks, splits the cores
 * among those of this machine, and starts the control thread. With a channel, the
 * process is bound to its share of cores. The signals of dlc_rank_signals must be
 * blocked. Takes ownership of `control`, also on failure. */
dlc_status dlc_rank_open(const dlc_rank_args *args, dlc_job **job);
/* Returns the signal that asked the only rank of a job to stop, 0 if none did. */
int dlc_rank_close(dlc_job *job);

/* The signals that a job handles. */
void dlc_rank_signals(sigset_t *set);
/* The request (DLC_JOB_...) of a signal after which the job continues; 0 for a stop
 * signal or any other. */
unsigned dlc_signal_request(int signal);

/* Stop signals to one process within so many seconds count as one: some programs signal
 * a process and then its group (timeout(1)). */
#define DLC_STOP_AGAIN_S 0.2

/* How long ranks may take to end once they were asked to. */
#define DLC_GRACE_NS 1500000000u

#endif
