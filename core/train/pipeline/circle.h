/* Some of a job's ranks, as a communicator of theirs needs them. Several circles, of
 * which every rank is in one, open at the same time over the job's one allgather.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_CIRCLE_H
#define DLC_TRAIN_CIRCLE_H

#include "comm/comm.h"
#include "comm/meeting.h"
#include "job/job.h"

/* Start with {0}. */
typedef struct dlc_circle {
    dlc_meeting *meeting;
    dlc_place *places; /* own */
    int32_t rank, ranks;
    void *seat;
} dlc_circle;

/* The ranks [first, first + ranks), of which this one is one. */
dlc_status dlc_circle_open(dlc_job *job, int32_t first, int32_t ranks,
                           dlc_circle *circle);
void dlc_circle_close(dlc_circle *circle); /* a zeroed one is allowed */

/* A communicator of the circle, by the transports of `how`, which is of all ranks. All
 * circles together, and dlc_circle_settle behind all that opens or attaches in it. */
dlc_status dlc_circle_connect(const dlc_circle *circle, const dlc_comm_args *how,
                              dlc_comm **comm);
/* Until all circles are through. */
dlc_status dlc_circle_settle(const dlc_circle *circle);

#endif
