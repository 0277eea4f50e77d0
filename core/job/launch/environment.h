/* What the environment says. A launcher (torchrun, mpirun, srun, Kubernetes, dlcore
 * --hosts) may have started this process as one rank of a job:
 *
 *   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK, LOCAL_WORLD_SIZE): as
 *   torchrun, Kubernetes' PyTorchJob and compatible launchers set them. Rank 0's
 *   process is the hub and listens at that address; at the next port where
 *   TORCHELASTIC_USE_AGENT_STORE=True says that torchrun itself uses this one.
 *
 *   PMIX_NAMESPACE, PMIX_RANK: as Open MPI's mpirun and srun --mpi=pmix set them.
 *   Rank 0 publishes the hub's address and a secret through PMIx.
 *
 *   PMI_FD, PMI_RANK, PMI_SIZE: as mpiexec without PMIx and srun --mpi=pmi2 set
 *   them. Rank 0 publishes the same through PMI-1.
 *
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST: srun without PMI.
 *   Rank 0 is on the first node, and its port follows from the numbers of job and
 *   step.
 *
 *   DLCORE_SECRET or DLCORE_SECRET_FILE: the job's secret, required off loopback,
 *   except with PMI and PMIx. DLCORE_ADDR, DLCORE_PORT: where the hub listens,
 *   overriding the above. */
#ifndef DLC_JOB_ENVIRONMENT_H
#define DLC_JOB_ENVIRONMENT_H

#include <stdint.h>

#include "base/status.h"
#include "job/hub/handshake.h"

/* ---- Variables: environment.c */

/* The value of a variable; NULL if it is not set or empty. */
const char *dlc_environment_text(const char *name);
/* A number from 0 to `most`; *number is -1 if the variable is not set. DLC_ERR_CONFIG
 * if it is something else. */
dlc_status dlc_environment_number(const char *name, long most, long *number);

/* Reads DLCORE_SECRET, or the file that DLCORE_SECRET_FILE names, which no other user
 * may be able to read; a newline at its end is ignored. Length 0 if neither is set. */
dlc_status dlc_secret_read(dlc_secret *secret);

/* Where jobs listen that choose a port themselves: below the ports that Linux gives to
 * outgoing connections (32768 and up). */
enum { DLC_FIRST_PORT = 16384, DLC_PORTS = 16384 };

/* ---- Launchers: launchers.c */

typedef enum dlc_external_kind {
    DLC_EXTERNAL_NONE, /* not started by a launcher */
    DLC_EXTERNAL_VARIABLES,
    DLC_EXTERNAL_PMIX,
    DLC_EXTERNAL_PMI,
    DLC_EXTERNAL_SLURM,
} dlc_external_kind;

#define DLC_EXTERNAL_HOST 256

typedef struct dlc_external {
    dlc_external_kind kind;
    int rank, ranks;              /* -1 if no variable says it, which PMIx allows */
    int local_rank;               /* -1 if no variable says it */
    int local_ranks;              /* on this machine; -1 if no variable says it */
    char host[DLC_EXTERNAL_HOST]; /* the hub's; "" where it is published */
    int anywhere;  /* rank 0 listens at all addresses of its machine, since `host` names
                    * it for the others only */
    uint16_t port; /* the hub's; 0: any */
} dlc_external;

/* Reads what a launcher has set. `asked` is the number of ranks in the settings (1: not
 * set). DLC_ERR_CONFIG if the environment contradicts itself or `asked`. */
dlc_status dlc_external_read(int asked, dlc_external *external);

#endif
