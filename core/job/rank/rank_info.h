/* What ranks tell each other about themselves when a job starts, and what follows from
 * it: which ranks are on one machine, and how they share its cores and devices. */
#ifndef DLC_JOB_RANK_INFO_H
#define DLC_JOB_RANK_INFO_H

#include "job/activity.h"
#include "job/job.h"
#include "topology/cores.h"
#include "topology/graph.h"

/* What a rank is opened with. */
typedef struct dlc_rank_args {
    const dlc_job_options *options;
    int rank, ranks;
    int local_rank; /* among the ranks of its machine; -1: to be counted */
    int control;    /* the control channel; -1: the only rank of a job has none */
    dlc_shared_activity *activity; /* this rank's */
    double hang_timeout;     /* seconds: with a channel, for how long the parent may be
                              * unresponsive; without, as in dlc_job_options. 0: for ever */
    const dlc_cores *cores;  /* that this process may use; needed while opening */
    const dlc_topo *machine; /* this one; empty, or NULL: not known */
} dlc_rank_args;

/* What every rank sends to all others, before anything else. */
typedef struct dlc_rank_details {
    dlc_rank_info info;
    /* Identifies the node: boot id, host name, and the process and network namespaces.
     * Ranks with different ones cannot map each other's memory. A container with a
     * network of its own is a node of its own. */
    char node[256];
    char boot[64];       /* the kernel's boot id: ranks with the same one share ... */
    dlc_core_set usable; /* ... those of these cores that both may use */
    uint64_t settings_digest, settings_bytes;
} dlc_rank_details;

/* Fills in this rank's details. */
dlc_status dlc_rank_details_make(const dlc_rank_args *args, dlc_rank_details *details);

/* Numbers the nodes in the order of their first ranks: sets info.node of all. */
void dlc_rank_details_number_nodes(dlc_rank_details *all, int ranks);
/* The index of the device that rank args->rank should use. */
int32_t dlc_rank_details_device(const dlc_rank_details *all, const dlc_rank_args *args);
/* The position of `rank` among the ranks that may use the same cores, and how many
 * there are. Ranks that a launcher has bound to different cores therefore keep them. */
void dlc_rank_details_core_share(const dlc_rank_details *all, int ranks, int rank,
                                 int *index, int *count);

/* Collective. DLC_ERR_CONFIG on all ranks, with the first difference, if one of them
 * has other settings than rank 0. */
dlc_status dlc_settings_check(dlc_job *job, const dlc_rank_args *args,
                              const dlc_rank_details *details);

#endif
