/* External launch: a launcher (torchrun, mpirun, srun) has started this process as one
 * rank of a job, and the environment says which. external.c reads the environment,
 * external_run.c runs the rank; both are called by dlc_job_run.
 *
 *   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK, LOCAL_WORLD_SIZE): as
 *   torchrun and compatible launchers set them. Rank 0's process is the hub and listens
 *   at that address; at the next port where TORCHELASTIC_USE_AGENT_STORE=True says that
 *   torchrun itself uses this one.
 *
 *   PMIX_NAMESPACE, PMIX_RANK: as mpirun and srun set them. Rank 0 publishes the hub's
 *   address and a secret through PMIx.
 *
 *   DLCORE_SECRET or DLCORE_SECRET_FILE: the job's secret, required off loopback.
 *   DLCORE_ADDR, DLCORE_PORT: where the hub listens, overriding the above.
 */
#ifndef DLC_JOB_EXTERNAL_H
#define DLC_JOB_EXTERNAL_H

#include "job/spawn.h"

typedef enum dlc_external_kind {
    DLC_EXTERNAL_NONE, /* not started by a launcher */
    DLC_EXTERNAL_VARIABLES,
    DLC_EXTERNAL_PMIX,
} dlc_external_kind;

typedef struct dlc_external {
    dlc_external_kind kind;
    int rank, ranks;  /* -1 if no variable says it, which PMIx allows */
    int local_rank;   /* -1 if no variable says it */
    const char *host; /* the hub's; NULL with PMIx */
    uint16_t port;    /* the hub's; 0: any */
} dlc_external;

/* Reads the environment. `asked` is the number of ranks in the settings (1: not set).
 * DLC_ERR_CONFIG if the environment contradicts itself or `asked`. */
dlc_status dlc_external_read(int asked, dlc_external *external);

/* Runs this process's rank; blocks until the job has ended. */
dlc_status dlc_external_run(dlc_launch *launch, const dlc_external *external,
                            int *exit_code);

#endif
