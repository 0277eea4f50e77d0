/* The kinds of launchers, and what each sets in the environment. Called by external.c.
 */
#ifndef DLC_JOB_EXTERNAL_KINDS_H
#define DLC_JOB_EXTERNAL_KINDS_H

#include <stdint.h>

#include "base/status.h"

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

dlc_status dlc_external_read_variables(dlc_external *external);
dlc_status dlc_external_read_pmix(dlc_external *external);
dlc_status dlc_external_read_pmi(dlc_external *external);
dlc_status dlc_external_read_slurm(dlc_external *external);

#endif
