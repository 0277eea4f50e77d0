/* A process group: some of a job's ranks, with what their communicator needs. Several
 * groups, one of which every rank is in, open at the same time over the job's only
 * out-of-band all-gather.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_PROCESS_GROUP_H
#define DLC_PARALLEL_PROCESS_GROUP_H

#include "comm/comm.h"
#include "comm/oob.h"
#include "job/job.h"
#include "setup/mesh.h"

/* Initialize with {0}. */
typedef struct dlc_process_group {
    dlc_oob *oob;
    dlc_rank_info *rank_info; /* own */
    int32_t rank, ranks;
    dlc_mesh_group members;
    void *oob_handle;
} dlc_process_group;

/* Collective. Opens a group of the mesh, which must include this rank. */
dlc_status dlc_process_group_open(dlc_job *job, dlc_mesh_group ranks,
                                  dlc_process_group *group);
void dlc_process_group_close(dlc_process_group *group); /* a zeroed one is allowed */

/* The arguments of a communicator of the group, with the transports of `how`, which is
 * for all ranks. dlc_process_group_finish must follow whatever opens one, collective
 * over all groups, or registers buffers in it. */
dlc_comm_args dlc_process_group_args(const dlc_process_group *group,
                                     const dlc_comm_args *how);
/* Waits until all groups are done. */
dlc_status dlc_process_group_finish(const dlc_process_group *group);

#endif
