/* Which machines of a job share a rack, by the bandwidth between them, where neither
 * the user nor a scheduler says it. Called by connection.c. */
#ifndef DLC_SESSION_MEASURED_RACKS_H
#define DLC_SESSION_MEASURED_RACKS_H

#include "comm/comm.h"
#include "job/machines.h"

typedef struct dlc_racks_args {
    dlc_job *job;
    const dlc_topo *topo;     /* of all machines, with the ranks */
    const dlc_comm_args *how; /* what the communicator was opened with */
    dlc_device *device;       /* another opening of its device */
} dlc_racks_args;

/* Collective. Measures with an open communicator. Racks are at least two, of at least
 * two machines each; they become domains, unless that would change the order of the
 * sums, and so the results. Rank 0 logs them. *changed: there are new domains. An error
 * closes the communicator. */
dlc_status dlc_racks_measure(const dlc_racks_args *args, dlc_comm **comm,
                             dlc_domains *domains, int *changed);

#endif
