/* The solver and the consistency model of a session: what they need. Called by the
 * session as it opens. */
#ifndef DLC_SESSION_MODEL_H
#define DLC_SESSION_MODEL_H

#include "session/session.h"

/* Asks the solver and the consistency model what they need. */
dlc_status dlc_session_ask_solver(dlc_session *session);
/* Counts the iterations of an epoch and of the run, by the samples of an iteration. */
dlc_status dlc_session_count_iterations(dlc_session *session);

/* Sets the learning rates of this run, or, if it resumes one, of that. */
dlc_status dlc_session_set_schedule(dlc_session *session);

/* The device memory that the consistency models will take, with nets built. */
dlc_status dlc_session_model_bytes(const dlc_session *session, uint64_t *bytes);

#endif
