/* Ranks from outside: others have started this process as one rank of a job, and the
 * environment says which.
 *
 *   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK, LOCAL_WORLD_SIZE): as
 *   torchrun-style launchers set them. Rank 0's process is the hub and listens there;
 * at the port behind it where TORCHELASTIC_USE_AGENT_STORE=True says that torchrun has
 *   that one itself.
 *
 *   PMIX_NAMESPACE, PMIX_RANK: as mpirun and srun set them. The hub's address and a
 *   secret go from rank 0 to the others through PMIx.
 *
 *   DLCORE_SECRET or DLCORE_SECRET_FILE: the job's secret, needed off loopback.
 *   DLCORE_ADDR, DLCORE_PORT: where the hub listens, instead of what is above.
 */
#ifndef DLC_JOB_OUTSIDE_H
#define DLC_JOB_OUTSIDE_H

#include "job/launch.h"

typedef enum dlc_outside_kind {
    DLC_OUTSIDE_NOT, /* this process was started by a person */
    DLC_OUTSIDE_VARIABLES,
    DLC_OUTSIDE_PMIX,
} dlc_outside_kind;

typedef struct dlc_outside {
    dlc_outside_kind kind;
    int rank, ranks;  /* with PMIx -1 where no variable says them */
    int local_rank;   /* -1 where no variable says it */
    const char *host; /* the hub's; NULL with PMIx, unless it was given */
    uint16_t port;    /* 0: any */
} dlc_outside;

/* What the environment says. DLC_ERR_CONFIG where it contradicts itself or `asked`, the
 * number of ranks that the settings ask for (1: they don't). */
dlc_status dlc_outside_read(int asked, dlc_outside *outside);

/* Runs this process's rank. */
dlc_status dlc_outside_run(dlc_launch *launch, const dlc_outside *outside,
                           int *exit_code);

#endif
