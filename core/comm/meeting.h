/* How several teams of ranks gather at once over a job's one allgather.
 *
 * The job's allgather wants every rank in every call, but a transport's open calls it
 * for its own team, as often as it likes. So the ranks meet in rounds: in each, every
 * rank brings the call that it is at, or nothing because it is through, and takes what
 * the members of its team brought. A rank's i-th call is its part of round i, so the
 * members of a team, which make the same calls, find each other. A rank that is
 * through keeps meeting (dlc_meeting_end) until all are; between two meetings a rank
 * calls for one team only.
 */
#ifndef DLC_COMM_MEETING_H
#define DLC_COMM_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_meeting dlc_meeting;

/* Groups that a rank may be in. */
enum { DLC_MEETING_SEATS = 2 };

dlc_status dlc_meeting_open(int32_t rank, int32_t ranks, void *job,
                            dlc_status (*allgather)(void *job, const void *mine,
                                                    size_t bytes, void *all),
                            dlc_status (*check)(void *job), dlc_meeting **meeting);
void dlc_meeting_close(dlc_meeting *meeting); /* NULL allowed */

/* A place at the meeting for the team of these ranks, in their order. *job goes with
 * the two services below to the team's transport, and lives as long as the meeting. */
dlc_status dlc_meeting_seat(dlc_meeting *meeting, int seat, const int32_t *rank,
                            int32_t ranks, void **job);
dlc_status dlc_meeting_allgather(void *job, const void *mine, size_t bytes, void *all);
dlc_status dlc_meeting_check(void *job);

/* Until every rank is here. */
dlc_status dlc_meeting_end(dlc_meeting *meeting);

#endif
