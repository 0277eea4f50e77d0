/* The machines of a job as one graph: every rank knows its own, and gets those of all
 * others over the control channel when the ranks connect. */
#ifndef DLC_JOB_MACHINES_H
#define DLC_JOB_MACHINES_H

#include "job/job.h"
#include "topology/domains.h"

/* Adds this rank's machine to an empty graph, as it was when the job was started:
 * nothing if dlc_job_options.discover was not set, or discovering failed. */
dlc_status dlc_job_machine(const dlc_job *job, dlc_topo *machine);

/* Collective. Gathers the machines and adds the ranks to an empty graph; only `mine` of
 * the first rank of each node counts. Machines are in the order of their first ranks.
 * *complete: 0 if a node has no graph; `all` is of no use then. */
dlc_status dlc_job_gather_machines(dlc_job *job, const dlc_topo *mine, dlc_topo *all,
                                   int *complete);

/* Finds the domains of the ranks in the graph that was gathered, and tells
 * dlc_job_rank_info of them. `rack`: as in dlc_domains_make. */
dlc_status dlc_job_find_domains(dlc_job *job, const dlc_topo *all, const int32_t *rack,
                                dlc_domains *domains);

#endif
