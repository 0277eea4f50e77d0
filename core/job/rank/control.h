/* The object behind dlc_job, and the control thread of a rank: it reads what the hub
 * sends and the signals of this process. Called by rank.c. */
#ifndef DLC_JOB_CONTROL_H
#define DLC_JOB_CONTROL_H

#include <pthread.h>
#include <stdatomic.h>

#include "job/activity.h"
#include "job/channel.h"
#include "job/job.h"
#include "job/rank/self_watchdog.h"
#include "topology/cores.h"
#include "topology/graph.h"

struct dlc_job {
    int rank, ranks, threads;
    pthread_t main;
    dlc_rank_info *infos;
    const dlc_topo *machine;
    dlc_thread_placement thread_cpus; /* own */
    int bound, on_spare_cpus;
    dlc_core_set before; /* dlc_job_use_spare_cpus: the caller's CPUs */
    dlc_shared_activity *activity;

    /* What follows is control.c's. */
    int control, signals, wakeup; /* descriptors; wakeup ends the thread */
    int has_thread;
    pthread_t thread;
    pthread_mutex_t sending; /* whole frames on `control` */
    _Atomic unsigned requests;
    _Atomic int stops;   /* what a request to stop does: see dlc_job_stop_at_once */
    _Atomic int stopped; /* at once */

    /* Used by the control thread only, to check that the parent is responsive. */
    double hang_timeout;
    uint64_t parent_ticks, last_tick;

    dlc_self_watchdog watchdog; /* of the only rank of a job; the control thread's */

    /* Why the job ends: written once, before `lost`. */
    char abort_reason[1024];
    int reported; /* the reason came from the hub, which has logged it */
    _Atomic int lost;

    /* A rank that cannot take part in what the ranks open. */
    _Atomic uint64_t calls;        /* collectives so far, the same on all ranks */
    _Atomic uint64_t withdrawn_at; /* how many there were then, plus 1; 0: none has */
    dlc_status withdrawn;          /* why, and its text; with the lock */
    char withdrawal[DLC_FAILURE_TEXT];

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t arrived;
    int ended, has_result;
    void *result;
    size_t result_bytes;
};

/* Initializes control.c's members; collectives work from then on. Takes over the
 * control channel; -1: there is none. */
void dlc_rank_control_open(dlc_job *job, int control, double hang_timeout);
/* Starts the control thread. */
dlc_status dlc_rank_control_start(dlc_job *job);
/* Ends the thread and releases control.c's members. */
void dlc_rank_control_close(dlc_job *job);
/* Sends a frame to the hub, from any thread. Handles errors, too: the job is lost. */
dlc_status dlc_rank_control_send(dlc_job *job, const dlc_frame *frame,
                                 const void *payload);

#endif
