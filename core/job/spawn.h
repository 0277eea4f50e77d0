/* Forking a rank. */
#ifndef DLC_JOB_SPAWN_H
#define DLC_JOB_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "job/doing.h"
#include "job/job.h"
#include "job/rank.h"
#include "topo/cores.h"

/* What was asked of dlc_job_run, and what every way of doing it needs. */
typedef struct dlc_launch {
    const dlc_job_options *options;
    dlc_job_main main;
    void *argument;
    dlc_cores *cores;
    dlc_doing *doing; /* one a rank that is forked here, shared with it */
    pid_t pid;        /* of this process */
    sigset_t signals; /* that wait for a signalfd between take and give_back */
    sigset_t mask_before;
    struct sigaction child_before;
} dlc_launch;

typedef struct dlc_spawn {
    int rank, ranks;
    int local_rank; /* -1: to be counted */
    dlc_doing *doing;
    int piped; /* output goes to the parent */
    int far;   /* others do without the rank where its parent is stopped */
    /* In the child: lets go of what is the parent's alone. */
    void (*forked)(void *context);
    /* In the child, before anything else: which rank it is. NULL: as above. */
    dlc_status (*find)(void *context, int control, int *rank, int *ranks);
    /* In the child, after all else, if all went well. NULL: nothing. */
    void (*left)(void *context);
    void *context;
} dlc_spawn;

typedef struct dlc_child {
    pid_t pid;   /* 0: none */
    int control; /* own; -1: none */
    int output;  /* own; the pipe's end, non-blocking; -1: none */
} dlc_child;

/* Sets *child also when it fails, to what must be closed. */
dlc_status dlc_spawn_rank(const dlc_launch *launch, const dlc_spawn *spawn,
                          dlc_child *child);

/* From here on signals wait to be read. */
void dlc_launch_take_signals(dlc_launch *launch);
void dlc_launch_give_signals_back(const dlc_launch *launch);

/* What a rank's main returned, as the exit code of a process. */
int dlc_exit_byte(int code);

dlc_rank_args dlc_launch_rank_args(const dlc_launch *launch, int rank, int ranks,
                                   int local_rank, dlc_doing *doing);

#endif
