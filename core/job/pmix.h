/* PMIx, by which mpirun and srun tell ranks of each other. The library is found at run
 * time: without it, only this way into a job is missing.
 *
 * The rank itself speaks to PMIx, since a library in it that wants PMIx, too, must find
 * it in the same process. What it learns goes to its parent over the control channel,
 * before anything else does:
 *
 *     rank -> parent   WHO: number: rank; size: ranks; payload: dlc_pmix_who
 *     parent -> rank   WHERE, to rank 0 alone: the hub's addresses and the secret
 *     rank -> parent   WHERE, from all others: the same, as PMIx brought it
 */
#ifndef DLC_JOB_PMIX_H
#define DLC_JOB_PMIX_H

#include <stdint.h>

#include "base/status.h"

#define DLC_WHERE_MOST 4096

typedef struct dlc_pmix_who {
    uint32_t local_ranks; /* on this machine, as PMIx counts them */
} dlc_pmix_who;

/* In the rank: joins, sees to the exchange above, and leaves where one may join again.
 * `ranks` is what the environment says (-1: nothing), `asked` what the settings do (1:
 * nothing). */
dlc_status dlc_pmix_join(int control, int ranks_said, int asked, int *rank, int *ranks);
/* At the end of the rank. Nothing if it has not joined. */
void dlc_pmix_leave(void);

#endif
