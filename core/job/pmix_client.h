/* PMIx, by which ranks that mpirun or srun has started find each other. The library is
 * loaded at run time: without it, only this kind of launch is unavailable.
 *
 * The rank itself is the PMIx client, since another library in it that uses PMIx must
 * find it in the same process. The rank passes what it learns to its parent over the
 * control channel, before any other message:
 *
 *     rank -> parent   PMIX_IDENTITY: number: rank; size: ranks; payload:
 *                      dlc_pmix_identity
 *     parent -> rank   PMIX_ADDRESS, to rank 0 only: the hub's addresses and the secret
 *     rank -> parent   PMIX_ADDRESS, from all others: the same, as received by PMIx
 */
#ifndef DLC_JOB_PMIX_CLIENT_H
#define DLC_JOB_PMIX_CLIENT_H

#include <stdint.h>

#include "base/status.h"

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
