/* PMI_FD, PMI_RANK and PMI_SIZE, as mpiexec without PMIx and srun --mpi=pmi2 set
 * them. */
#include "job/environment.h"
#include "job/external_kinds.h"
#include "job/job.h"

dlc_status dlc_external_read_pmi(dlc_external *external) {
    long rank, ranks, local_rank, local_ranks;
    DLC_TRY(dlc_environment_number("PMI_RANK", DLC_JOB_RANKS_MAX - 1, &rank));
    DLC_TRY(dlc_environment_number("PMI_SIZE", DLC_JOB_RANKS_MAX, &ranks));
    DLC_TRY(
        dlc_environment_number("MPI_LOCALRANKID", DLC_JOB_RANKS_MAX - 1, &local_rank));
    DLC_TRY(dlc_environment_number("MPI_LOCALNRANKS", DLC_JOB_RANKS_MAX, &local_ranks));
    DLC_TRY(dlc_environment_check_rank("PMI_RANK", rank, "PMI_SIZE", ranks));
    if (rank < 0 || !dlc_environment_text("PMI_FD"))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "this is one of %ld processes that were started through PMI, but "
            "%s is not set in the environment: use mpiexec without "
            "-pmi-port, srun --mpi=pmi2 or --mpi=pmix, or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            ranks, rank < 0 ? "PMI_RANK" : "PMI_FD");
    external->rank = (int)rank;
    external->ranks = (int)ranks;
    external->local_rank = (int)local_rank;
    external->local_ranks = (int)local_ranks;
    return DLC_OK;
}
