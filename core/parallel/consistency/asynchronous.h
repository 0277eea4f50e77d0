/* Support for consistency models whose ranks need not be in the same iteration. All
 * ranks count iterations alike, so each comes to the next test or checkpoint by itself,
 * and there they synchronize. */
#ifndef DLC_PARALLEL_CONSISTENCY_ASYNCHRONOUS_H
#define DLC_PARALLEL_CONSISTENCY_ASYNCHRONOUS_H

#include "session/session.h"

/* Can this job have what the consistency model needs? DLC_ERR_CONFIG if not. */
dlc_status dlc_asynchronous_check(const dlc_session *session);

/* Collective. Opens the p2p channel if the model asked for one. */
dlc_status dlc_asynchronous_open_p2p(dlc_session *session);

/* Collective. Waits until all ranks are after this iteration, with the same weights;
 * nothing is in flight then. Does nothing in synchronous training. */
dlc_status dlc_asynchronous_synchronize(dlc_session *session);

/* Collective. *speed: images a second, as one rank would estimate it for the whole job
 * from its own time; becomes the sum over the ranks of what each really processes. */
dlc_status dlc_asynchronous_throughput(dlc_session *session, double *speed);

#endif
