/* Opens the feeds of a session, configured by its device, its part of the batch and the
 * data sections. Called by the session. */
#ifndef DLC_RUN_FEEDS_H
#define DLC_RUN_FEEDS_H

#include "session/session.h"

/* Opens session->feed and test_feed, as far as this rank has samples to read. */
dlc_status dlc_feeds_open(dlc_session *session);
/* Opens test_feed alone. */
dlc_status dlc_feeds_open_test(dlc_session *session);
void dlc_feeds_close(dlc_session *session);

/* The bytes that the feed of a phase allocates, and those of one batch. The feed need
 * not be open. */
dlc_status dlc_feeds_bytes(const dlc_session *session, dlc_phase phase, uint64_t *bytes,
                           uint64_t *batch);

#endif
