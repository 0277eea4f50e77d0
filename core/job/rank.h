/* A rank's side of the job: the object behind dlc_job. */
#ifndef DLC_JOB_RANK_H
#define DLC_JOB_RANK_H

#include <signal.h>

#include "job/doing.h"
#include "job/job.h"
#include "topo/cores.h"

typedef struct dlc_rank_args {
    int rank, ranks;
    int threads;      /* 0: one a core of its share */
    int control;      /* the channel; -1 where the only rank needs no hub */
    dlc_doing *doing; /* this rank's */
    double deadline;  /* so long nobody may look at it or, without a channel, it may
                       * hang,  seconds; 0: for ever */
    int local_rank;   /* of its machine; -1: to be counted */
    const char *device;
    const int32_t *device_index; /* as in dlc_job_options */
    int devices;
    const dlc_cores *cores; /* that this process may use; needed while opening */
    int unbound;
} dlc_rank_args;

/* Makes the job object, finds the other ranks, shares the cores out among those of
 * this machine, and starts the control thread. With a channel, the process is bound to
 * its share. dlc_rank_signals must be blocked. Takes `control` over, also when it
 * fails. */
dlc_status dlc_rank_open(const dlc_rank_args *args, dlc_job **job);
/* Returns the signal that asked the only rank of a job to stop, 0 if none did. */
int dlc_rank_close(dlc_job *job);

/* The signals that a job takes over. */
void dlc_rank_signals(sigset_t *set);
/* What one of them asks for and the job goes on with (DLC_JOB_...); 0: it is to stop,
 * or the signal is none of them. */
unsigned dlc_signal_request(int signal);

/* Two stop signals to a process this near are one: some send a signal to a process
 * and to its group (timeout(1)). */
#define DLC_STOP_AGAIN_S 0.2

/* How long ranks may take to end once they were told to. */
#define DLC_GRACE_NS 1500000000u

#endif
