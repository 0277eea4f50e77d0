/* Opens and closes a session (session/session.h): the device, the division of the work
 * over the ranks (core/parallel), nets, feeds, transport and exchange, in the order in
 * which they depend on each other.
 *
 * Threads: the training thread. */
#ifndef DLC_RUN_RUN_H
#define DLC_RUN_RUN_H

#include "base/json.h"
#include "base/text.h"
#include "session/session.h"

/* Opens everything for training but the consistency model. Collective: all ranks call
 * it. */
dlc_status dlc_session_open(dlc_setup *setup, dlc_job *job, dlc_session *session);
/* Opens the consistency model, which begins with the session's current weights, slots
 * and iteration. Collective. */
dlc_status dlc_session_start(dlc_session *session);
/* After the batch was split anew, right after a synchronization: closes and reopens
 * everything but the device and its queue, and starts the consistency model. Weights,
 * running averages and the solver's state are kept. The caller has closed what points
 * to nets and feeds. Collective. On failure the caller still closes the session. */
dlc_status dlc_session_reopen(dlc_session *session);
/* Opens what a test of saved weights needs. `output`: what is handed out beside the
 * metrics, or NULL. Collective. */
dlc_status dlc_session_open_test(dlc_setup *setup, dlc_job *job,
                                 const dlc_session_output *output,
                                 dlc_session *session);
/* Opens what `dlcore check` shows: nets are built, but no tensor memory is allocated
 * and there are no peers. The session is that of `rank` among `ranks`, which need not
 * exist; choices that ranks make by measuring keep their defaults. */
dlc_status dlc_session_open_plan(dlc_setup *setup, dlc_job *job, int32_t rank,
                                 int32_t ranks, dlc_session *session);
void dlc_session_close(dlc_session *session);

/* Are the interconnect, and the memory, measured before it is decided how the work is
 * divided? */
int dlc_session_measures(const dlc_session *session);
/* Seconds that this rank has waited for others, exchanges left out. */
double dlc_session_waited(const dlc_session *session);
/* Describes the part of the net that this rank has, if it is divided: appends a few
 * words to `text`, and adds to the open `json`; both may be NULL. */
void dlc_session_describe_part(const dlc_session *session, dlc_text *text,
                               dlc_json *json);

/* A part of dlc_session_reopen (reopen.c): weights and slots have their initial values
 * afterwards. */
dlc_status dlc_session_reopen_work(dlc_session *session);

#endif
