/* Feeds of tests: each call fails the test if it fails. */
#ifndef TEST_FEEDS_H
#define TEST_FEEDS_H

#include "data/feed.h"

/* The caller closes it. */
dlc_feed *feeds_open(const dlc_feed_args *args);
dlc_batch feeds_next(dlc_feed *feed);

#endif
