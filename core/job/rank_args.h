/* What a rank's side of the job is opened with. */
#ifndef DLC_JOB_RANK_ARGS_H
#define DLC_JOB_RANK_ARGS_H

#include "job/activity.h"
#include "topology/cores.h"
#include "topology/graph.h"

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
    const dlc_cores *cores;  /* that this process may use; needed while opening */
    const dlc_topo *machine; /* this one; empty: not known */
    int unbound;
    const char *settings; /* as in dlc_job_options; not NULL */
} dlc_rank_args;

#endif
