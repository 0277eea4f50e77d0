/* The average of the weights in a session: that of its own arena and that of the arena
 * of sharded parameters. Every rank averages the weights whose slots it has; tests
 * gather the average from all ranks.
 *
 * Threads: the train thread. */
#ifndef DLC_SESSION_EMA_H
#define DLC_SESSION_EMA_H

#include "session/session.h"

/* After the slots are open. Nothing is averaged without [solver] ema. */
void dlc_session_ema_open(dlc_session *session);

/* Begins with the weights as they are. */
dlc_status dlc_session_ema_begin(const dlc_session *session);

/* Collective, between iterations: the test net reads the averages from here until
 * `end`, with [train] test_ema. */
dlc_status dlc_session_ema_test_begin(const dlc_session *session);
dlc_status dlc_session_ema_test_end(const dlc_session *session);

#endif
