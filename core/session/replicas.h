/* The replicas of a rank's parameters: the ranks that have the same ones, itself among
 * them. A consistency model keeps them equal, by messages on a channel of their own.
 * All ranks are replicas, unless a pipeline or tensor groups divide the net.
 *
 * Threads: the train thread. */
#ifndef DLC_SESSION_REPLICAS_H
#define DLC_SESSION_REPLICAS_H

#include "comm/comm.h"
#include "comm/oob.h"
#include "comm/p2p_channel.h"
#include "job/job.h"
#include "setup/mesh.h"

/* Initialize with {0}: there are no others. */
typedef struct dlc_replicas {
    dlc_mesh_group ranks; /* which of the job's */
    int32_t parts; /* neighbouring ranks that have one replica between them; 0: one */
    dlc_comm_args how; /* for communicators and channels of them */
    dlc_oob *oob;      /* to be finished after these are opened; NULL: nothing is */

    /* Own, once it is open. */
    int64_t *samples; /* of a pass, of each replica */
    dlc_p2p *p2p;     /* NULL: the consistency model needs none */
} dlc_replicas;

/* Collective over the job, once all groups of ranks are connected; `samples`: of this
 * rank in a pass; `needs_p2p`: does the consistency model need a channel? */
dlc_status dlc_replicas_open(dlc_replicas *replicas, dlc_job *job, int64_t samples,
                             int needs_p2p);
void dlc_replicas_close(dlc_replicas *replicas); /* a zeroed one is allowed */

/* The rank in the job of replica `index`. */
int32_t dlc_replicas_rank(const dlc_replicas *replicas, int32_t index);

#endif
