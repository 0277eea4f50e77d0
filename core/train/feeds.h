/* The feeds of a session: what they are opened with, as its device, its share of the
 * batch and [data] say. */
#ifndef DLC_TRAIN_FEEDS_H
#define DLC_TRAIN_FEEDS_H

#include "train/session.h"

/* session->feed and test_feed, as far as this rank has samples to read. */
dlc_status dlc_feeds_open(dlc_session *session);
/* test_feed alone. */
dlc_status dlc_feeds_open_test(dlc_session *session);
void dlc_feeds_close(dlc_session *session);

/* Bytes that the feed of a phase keeps, and those of one batch; it need not be open. */
dlc_status dlc_feeds_bytes(const dlc_session *session, dlc_phase phase, uint64_t *bytes,
                           uint64_t *batch);

#endif
