/* External launch: a launcher (torchrun, mpirun, srun, Kubernetes, dlcore --hosts) has
 * started this process as one rank of a job, and the environment says which. external.c
 * finds out which kind of launcher it was, external_KIND.c read its variables, and
 * external_run.c runs the rank; external.c and external_run.c are called by
 * dlc_job_run.
 *
 *   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK, LOCAL_WORLD_SIZE): as
 *   torchrun, Kubernetes' PyTorchJob and compatible launchers set them. Rank 0's
 * process is the hub and listens at that address; at the next port where
 *   TORCHELASTIC_USE_AGENT_STORE=True says that torchrun itself uses this one.
 *
 *   PMIX_NAMESPACE, PMIX_RANK: as Open MPI's mpirun and srun --mpi=pmix set them. Rank
 * 0 publishes the hub's address and a secret through PMIx.
 *
 *   PMI_FD, PMI_RANK, PMI_SIZE: as mpiexec without PMIx and srun --mpi=pmi2 set
 * them. Rank 0 publishes the same through PMI-1.
 *
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST: srun without PMI. Rank 0
 * is on the first node, and its port follows from the numbers of job and step.
 *
 *   DLCORE_SECRET or DLCORE_SECRET_FILE: the job's secret, required off loopback,
 * except with PMI and PMIx. DLCORE_ADDR, DLCORE_PORT: where the hub listens, overriding
 * the above.
 */
#ifndef DLC_JOB_EXTERNAL_H
#define DLC_JOB_EXTERNAL_H

#include "job/external_kinds.h"
#include "job/spawn.h"

/* Reads the environment. `asked` is the number of ranks in the settings (1: not set).
 * DLC_ERR_CONFIG if the environment contradicts itself or `asked`. */
dlc_status dlc_external_read(int asked, dlc_external *external);

/* Runs this process's rank; blocks until the job has ended. */
dlc_status dlc_external_run(dlc_launch *launch, const dlc_external *external,
                            int *exit_code);

#endif
