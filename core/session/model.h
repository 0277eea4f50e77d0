/* The solver and the consistency model of a session: what they need, the solver's
 * slots, and the model that applies its updates. Called by the session as it opens. */
#ifndef DLC_SESSION_MODEL_H
#define DLC_SESSION_MODEL_H

#include "session/session.h"

/* Asks the solver and the consistency model what they need. */
dlc_status dlc_session_ask_solver(dlc_session *session);
/* Counts the iterations of an epoch and of the run, by the samples of an iteration. */
dlc_status dlc_session_count_iterations(dlc_session *session);

/* Allocates the slots and the sum of accumulated gradients. */
dlc_status dlc_session_open_slots(dlc_session *session);
/* Begins with the session's weights, slots and iteration. Collective. */
dlc_status dlc_session_open_model(dlc_session *session);
/* Closes the model; no thread waits for its channel any more. */
void dlc_session_close_model(dlc_session *session);

/* The device memory that the consistency models will take, with nets built. */
dlc_status dlc_session_model_bytes(const dlc_session *session, uint64_t *bytes);

#endif
