/* Out-of-band (oob) all-gathers of groups of ranks over the job's single all-gather.
 *
 * The job's all-gather needs every rank in every call, but a transport's open calls
 * oob_all_gather for its own group, as often as it likes. So the ranks proceed in
 * rounds: in each round every rank contributes the data of its current call, or nothing
 * if it has finished, and takes what the members of its group contributed. A rank's
 * i-th call is its part of round i, so the members of a group, which make the same
 * calls, find each other. A rank that has finished keeps taking part (dlc_oob_finish)
 * until all have; between two dlc_oob_finish a rank calls for one group only.
 */
#ifndef DLC_COMM_OOB_H
#define DLC_COMM_OOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_oob dlc_oob;

/* Groups that a rank may be in. */
enum { DLC_OOB_GROUPS = 8 };

/* `job` and the calls are those of dlc_transport_args, over all ranks of the job. */
dlc_status dlc_oob_open(int32_t rank, int32_t ranks, void *job,
                        dlc_status (*all_gather)(void *job, const void *mine,
                                                 size_t bytes, void *all),
                        dlc_status (*check)(void *job), dlc_oob **oob);
void dlc_oob_close(dlc_oob *oob); /* NULL is allowed */

/* Adds a group of these ranks, in this order; `index` is below DLC_OOB_GROUPS. *job is
 * the first argument of the two calls below, which go to the group's transport; it
 * lives until dlc_oob_close. */
dlc_status dlc_oob_add_group(dlc_oob *oob, int index, const int32_t *rank,
                             int32_t ranks, void **job);
/* dlc_transport_args.oob_all_gather and .check of a group. */
dlc_status dlc_oob_all_gather(void *job, const void *mine, size_t bytes, void *all);
dlc_status dlc_oob_check(void *job);

/* Whether another rank is known to have failed: an error of this rank follows from it.
 */
int dlc_oob_has_failed(const dlc_oob *oob);

/* Collective over all ranks of the job: serves the rounds of other ranks until every
 * rank has called it. `mine` says how the rank's calls ended: an error is returned
 * again, and makes the all-gathers of its groups, and this call, return
 * DLC_ERR_PEER on all other ranks. */
dlc_status dlc_oob_finish(dlc_oob *oob, dlc_status mine);

#endif
