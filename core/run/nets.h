/* Builds the nets of a session: planned only (`dlcore check`), or allocated, with the
 * same parameter layout on all ranks. Called by the session. */
#ifndef DLC_RUN_NETS_H
#define DLC_RUN_NETS_H

#include "session/session.h"

/* Builds session->net, and test_net if [data.test] is open, without allocating them. */
dlc_status dlc_nets_build(dlc_session *session);
/* Builds a training net for this rank's batch, to be timed; release it with
 * dlc_net_free. */
dlc_status dlc_nets_build_train(dlc_session *session, dlc_net **net);
/* Builds and allocates the nets, with the same parameter layout on all ranks.
 * Collective. */
dlc_status dlc_nets_open(dlc_session *session);
/* Builds and allocates a test net that owns its parameters, with session->output. */
dlc_status dlc_nets_open_test(dlc_session *session);
/* Builds an outline of the same net without that output; release it with dlc_net_free.
 */
dlc_status dlc_nets_build_test_outline(dlc_session *session, dlc_net **net);
void dlc_nets_free(dlc_session *session);

#endif
