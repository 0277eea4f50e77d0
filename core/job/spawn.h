/* Forks ranks, and holds what every kind of launch needs. Called by launch.c (ranks on
 * this machine) and external_run.c (the rank of an external launch). */
#ifndef DLC_JOB_SPAWN_H
#define DLC_JOB_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "job/activity.h"
#include "job/job.h"
#include "job/rank_args.h"
#include "topology/cores.h"

/* The arguments of dlc_job_run, and the state common to all kinds of launch. */
typedef struct dlc_launch {
    const dlc_job_options *options;
    dlc_job_main main;
    void *argument;
    dlc_cores *cores;
    dlc_topo machine;              /* this one; empty: not known */
    dlc_shared_activity *activity; /* one for each rank forked here, shared with it */
    pid_t pid;                     /* of this process */
    pid_t parent;     /* of the launcher that has started it; 0: it may outlive that */
    sigset_t signals; /* blocked between block_signals and restore_signals */
    sigset_t mask_before;
    struct sigaction child_before;
} dlc_launch;

/* How to fork one rank. */
typedef struct dlc_spawn {
    int rank, ranks;
    int local_rank; /* -1: to be counted */
    dlc_shared_activity *activity;
    int piped;        /* the rank's output goes to the parent through a pipe */
    int watch_parent; /* end the rank when its parent hangs: other ranks, which have
                       * other parents, go on without it then */
    /* Called in the child: closes descriptors that only the parent needs. */
    void (*in_child)(void *context);
    /* Called in the child before `main`: finds out rank and number of ranks. NULL:
     * those above. */
    dlc_status (*identify)(void *context, int control, int *rank, int *ranks);
    /* Called in the child after `main`, if it returned 0. NULL: nothing. */
    void (*at_exit)(void *context);
    void *context;
} dlc_spawn;

typedef struct dlc_child {
    pid_t pid;   /* 0: none */
    int control; /* the parent's end of the control channel; own; -1: none */
    int output;  /* the read end of the output pipe, non-blocking; own; -1: none */
} dlc_child;

/* Forks a rank. *child is set on failure, too: the caller closes what is in it. */
dlc_status dlc_spawn_rank(const dlc_launch *launch, const dlc_spawn *spawn,
                          dlc_child *child);

/* Blocks the signals that a job handles, so that a signalfd can read them. */
void dlc_launch_block_signals(dlc_launch *launch);
/* Restores the caller's signal mask and SIGCHLD handler. */
void dlc_launch_restore_signals(const dlc_launch *launch);

/* The return value of a rank's main as the exit code of a process: only 0 becomes 0. */
int dlc_exit_byte(int code);

/* The rank's arguments that follow from the options; the caller sets `control` and
 * `hang_timeout`. */
dlc_rank_args dlc_launch_rank_args(const dlc_launch *launch, int rank, int ranks,
                                   int local_rank, dlc_shared_activity *activity);

#endif
