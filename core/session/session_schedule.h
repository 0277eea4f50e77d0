/* The schedule of a session: an axis's, or passes of the whole net.
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_SESSION_SCHEDULE_H
#define DLC_SESSION_SESSION_SCHEDULE_H

#include "session/session.h"

/* The schedule of this rank, at the beginning of an iteration. */
dlc_schedule dlc_schedule_of(dlc_session *session);

#endif
