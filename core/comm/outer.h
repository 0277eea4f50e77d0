/* A thread that does the outermost level of a communicator's all-reduces while the
 * calling thread does the levels below it for other parts of the buffer. comm.c owns
 * it; it is the only one that uses the outermost team meanwhile. */
#ifndef DLC_COMM_OUTER_H
#define DLC_COMM_OUTER_H

#include <stdatomic.h>

#include "comm/team.h"

/* How many parts may be started and not yet waited for. */
enum { DLC_OUTER_PARTS = 4 };

typedef struct dlc_outer dlc_outer;

/* `cancelled` is set when a part fails, so that what the caller does below ends, too.
 * `check` is called while the caller waits. DLC_ERR_NOMEM. */
dlc_status dlc_outer_open(atomic_int *cancelled, dlc_status (*check)(void *job),
                          void *job, dlc_outer **outer);
void dlc_outer_close(dlc_outer *outer); /* NULL is allowed */

/* Reduces a part in the background; no team: there is nothing to do for this rank. */
void dlc_outer_start(dlc_outer *outer, dlc_team *team, float *buffer, size_t count);

/* Waits for the first part that was not waited for. Returns the first error. */
dlc_status dlc_outer_wait(dlc_outer *outer);

/* After an error of the caller: cancels and waits for all parts. Returns the error to
 * report: that of a part if it made the caller's call end. */
dlc_status dlc_outer_cancel(dlc_outer *outer, dlc_status status);

#endif
