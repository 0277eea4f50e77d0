/* Which machines of a job share a rack, by what its user or its scheduler says. Called
 * when the ranks connect. */
#ifndef DLC_SESSION_RACKS_H
#define DLC_SESSION_RACKS_H

#include "job/job.h"

/* Collective. Writes the rack of each rank: by `racks`, the setting of [transport],
 * which has the numbers of machines in each rack ("2 2"), or the hosts of each, with
 * patterns
 * ("a1 a2 / b*"); where it is empty, by the switches of SLURM_TOPOLOGY_ADDR. *known: 0
 * if neither says it. DLC_ERR_CONFIG: the setting does not fit the machines. */
dlc_status dlc_racks_find(dlc_job *job, const char *racks, int32_t *rack, int *known);

#endif
