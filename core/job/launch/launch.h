/* A launch: how the processes of a job come into being. launch.c runs one rank in this
 * process, or forks several with this process as their hub. external.c runs one rank of
 * a job whose processes another launcher has started: it forks the rank, and this
 * process is its hub if it is rank 0, else its agent. */
#ifndef DLC_JOB_LAUNCH_H
#define DLC_JOB_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "job/hub/address.h"
#include "job/hub/hub.h"
#include "job/job.h"
#include "job/launch/environment.h"
#include "topology/cores.h"
#include "topology/graph.h"

typedef struct dlc_launch {
    /* The arguments of dlc_job_run. */
    const dlc_job_options *options;
    dlc_job_main main;
    void *argument;

    dlc_cores *cores;
    dlc_topo machine;              /* this one; empty: not known */
    dlc_shared_activity *activity; /* one for each rank forked here, shared with it */
    pid_t pid;                     /* of this process */
    sigset_t signals; /* blocked between block_signals and restore_signals */
    sigset_t mask_before;
    struct sigaction child_before;
    int rank, ranks; /* in an external launch, this process's rank */
    dlc_hub hub;     /* not open: this process is not the hub */

    /* Of an external launch. */
    dlc_external external;
    pid_t parent; /* the launcher that has started this process; 0: it may outlive it */
    double timeout; /* of the rendezvous, in seconds */
    dlc_secret secret;
    dlc_acceptor acceptor;              /* the hub's */
    int hub_fd;                         /* an agent's connection to it; -1: none */
    char hub_address[DLC_ADDRESS_TEXT]; /* for messages */
} dlc_launch;

/* Forks a rank, which closes what only this process needs. */
dlc_status dlc_launch_fork(dlc_launch *launch, int rank, dlc_rank_process *child);

/* Blocks the signals that a job handles, so that a signalfd can read them. */
void dlc_launch_block_signals(dlc_launch *launch);
/* Restores the caller's signal mask and SIGCHLD handler. */
void dlc_launch_restore_signals(const dlc_launch *launch);

/* Runs the hub, whose ranks have been started; blocks until the job has ended. */
dlc_status dlc_launch_run_hub(dlc_launch *launch, int *exit_code);
/* Runs this process's rank of an external launch; blocks until the job has ended. */
dlc_status dlc_launch_run_external(dlc_launch *launch, int *exit_code);
/* Closes the hub, and the connections of an external launch. */
void dlc_launch_close(dlc_launch *launch);

/* The return value of a rank's main as the exit code of a process: only 0 becomes 0. */
int dlc_exit_byte(int code);

#endif
