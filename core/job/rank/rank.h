/* A rank's side of the job: opens and closes the object behind dlc_job. Called in the
 * rank's process by launch/launch.c. */
#ifndef DLC_JOB_RANK_H
#define DLC_JOB_RANK_H

#include "job/job.h"
#include "job/rank/rank_info.h"

/* Creates the job object, exchanges rank infos with the other ranks, splits the cores
 * among those of this machine, and starts the control thread. With a channel, the
 * process is bound to its share of cores. The signals of dlc_rank_signals must be
 * blocked. Takes ownership of `control`, also on failure. */
dlc_status dlc_rank_open(const dlc_rank_args *args, dlc_job **job);
/* This machine, as it was given. */
const dlc_topo *dlc_rank_machine(const dlc_job *job);
/* The entry of dlc_job_rank_info, to complete it (machines.c). */
dlc_rank_info *dlc_rank_own_info(dlc_job *job, int r);
/* Tells the hub that main has returned, without which an exit code of 0 is a failure.
 */
void dlc_rank_returned(dlc_job *job);
/* Returns the signal that asked the only rank of a job to stop, 0 if none did. */
int dlc_rank_close(dlc_job *job);

#endif
