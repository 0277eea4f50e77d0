/* The sets of parameters of a session: opened, updated and closed alike.
 *
 * Threads: the train thread. */
#ifndef DLC_SESSION_PARAM_SETS_H
#define DLC_SESSION_PARAM_SETS_H

#include "session/session.h"

/* Collective, once axes are connected and nets allocated. */
dlc_status dlc_param_sets_open_exchange(dlc_session *session);
/* Allocates slots and sums of accumulated gradients. */
dlc_status dlc_param_sets_open_slots(dlc_session *session);
/* Collective. The models begin with the session's weights, slots and iteration. */
dlc_status dlc_param_sets_open_models(dlc_session *session);

/* In this order; what was not opened is skipped. */
void dlc_param_sets_close_models(dlc_session *session);
void dlc_param_sets_close_slots(dlc_session *session);
void dlc_param_sets_close_exchange(dlc_session *session);

/* All gradients of an iteration are ready: updates the weights, or defers that.
 * `waits`: no forward follows that would need them. */
dlc_status dlc_param_sets_update(dlc_session *session, int waits);
/* dlc_net_args.wait_for_weights: runs the deferred updates of these elements. */
dlc_status dlc_param_sets_need(void *session, int32_t set, size_t begin, size_t end);
/* Runs all deferred updates. */
dlc_status dlc_param_sets_finish(dlc_session *session);

/* Between ready and update, where updates need norms: the squared norm of the set's
 * gradients in device memory, reduced unless it is late; NULL if it has none.
 * Collective over the ranks of the set. */
dlc_status dlc_param_set_gradient_square(const dlc_param_set *set,
                                         const double **square);

/* Of the exchanges of all sets. */
dlc_exchange_stats dlc_param_sets_exchanged(const dlc_session *session);
/* Is any of them stream-ordered? */
int dlc_param_sets_are_stream_ordered(const dlc_session *session);
/* Fails if a stream-ordered reduction has failed. */
dlc_status dlc_param_sets_poll(const dlc_session *session);

#endif
