/* A rank's side of the job: the object behind dlc_job. */
#ifndef DLC_JOB_RANK_H
#define DLC_JOB_RANK_H

#include <signal.h>

#include "job/job.h"
#include "topo/cores.h"

/* What a rank does now; in memory that the hub reads when the rank is dead. */
typedef struct dlc_doing {
    char phase[24];
    char name[64];
    uint64_t bytes;
} dlc_doing;

typedef struct dlc_rank_args {
    int rank, ranks, threads;
    int control;      /* the channel; -1 where the only rank needs no hub */
    dlc_doing *doing; /* this rank's */
    const char *device;
    int32_t device_index;
    dlc_thread_places places; /* of its threads */
    int bound;                /* they are to be bound to them */
} dlc_rank_args;

/* Makes the job object, starts its control thread and finds the other ranks.
 * dlc_rank_signals must be blocked. Takes `control` and `places` over, also when it
 * fails. */
dlc_status dlc_rank_open(const dlc_rank_args *args, dlc_job **job);
/* Returns the signal that asked the only rank of a job to stop, 0 if none did. */
int dlc_rank_close(dlc_job *job);

/* The signals that a job takes over. */
void dlc_rank_signals(sigset_t *set);

/* Two stop signals to a process this near are one: some send a signal to a process
 * and to its group (timeout(1)). */
#define DLC_STOP_AGAIN_S 0.2

/* " during forward conv1", "" for nothing. */
#define DLC_DOING_TEXT 160
void dlc_doing_text(const dlc_doing *doing, char text[DLC_DOING_TEXT]);

#endif
