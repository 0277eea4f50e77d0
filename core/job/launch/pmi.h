/* The services by which the processes of an MPI job find each other: PMI-1 and PMIx.
 * Rank 0 publishes a text, the hub's addresses and the job's secret; the others get it.
 */
#ifndef DLC_JOB_PMI_H
#define DLC_JOB_PMI_H

#include <stdint.h>

#include "base/status.h"

/* The name of that text. */
#define DLC_PMI_KEY "dlcore.hub"

/* ---- PMI-1: pmi.c
 * mpiexec and srun --mpi=pmi2 speak this protocol of lines over the descriptor that
 * PMI_FD names. There is no library for it apart from each MPI's own (Balaji et al.,
 * "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems",
 * EuroMPI 2010). */

#define DLC_PMI_LINE_MAX 2048

typedef struct dlc_pmi {
    int fd;                      /* own; -1: closed */
    double timeout;              /* seconds to wait for an answer */
    char space[256];             /* the name of the job's key-value space */
    char line[DLC_PMI_LINE_MAX]; /* the last answer */
} dlc_pmi;

/* Joins through the descriptor that PMI_FD names, and removes PMI's variables from the
 * environment, so that no library tries to join a second time. */
dlc_status dlc_pmi_open(double timeout, dlc_pmi *pmi);
/* Tells the launcher that this process needs PMI no more. A process that ends without
 * having called it has failed: the launcher ends the others. */
dlc_status dlc_pmi_finalize(dlc_pmi *pmi);
void dlc_pmi_close(dlc_pmi *pmi);

/* Publishes a text without blanks for all processes; seen after the next barrier. */
dlc_status dlc_pmi_put(dlc_pmi *pmi, const char *key, const char *value);
/* Waits until all processes of the job have called it. */
dlc_status dlc_pmi_barrier(dlc_pmi *pmi);
/* *value is part of `pmi`, and valid until the next call. */
dlc_status dlc_pmi_get(dlc_pmi *pmi, const char *key, char **value);

/* ---- PMIx: pmix.c
 * The library is loaded at run time: without it, only this kind of launch is
 * unavailable. The rank itself is the PMIx client, since another library in it that
 * uses PMIx must find it in the same process. The rank passes what it learns to its
 * parent over the control channel, before any other message:
 *
 *     rank -> parent   PMIX_IDENTITY: number: rank; size: ranks; payload:
 *                      dlc_pmix_identity
 *     parent -> rank   PMIX_ADDRESS, to rank 0 only: the hub's addresses and the secret
 *     rank -> parent   PMIX_ADDRESS, from all others: the same, as received by PMIx */

#define DLC_PMIX_ADDRESS_MAX 4096

typedef struct dlc_pmix_identity {
    uint32_t local_ranks; /* on this machine, as PMIx counts them */
} dlc_pmix_identity;

/* Called in the rank: initializes PMIx, does the exchange above, and finalizes PMIx
 * again if its version can be initialized twice in a process. `ranks_said` is
 * WORLD_SIZE (-1: not set), `asked` the number of ranks in the settings (1: not set).
 * Blocks. */
dlc_status dlc_pmix_join(int control, int ranks_said, int asked, int *rank, int *ranks);
/* Called at the end of the rank. Does nothing if it has not joined. */
void dlc_pmix_leave(void);

#endif
