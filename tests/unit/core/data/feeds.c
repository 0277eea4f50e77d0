/* Opens feeds for tests, and gets their batches. */
#include "feeds.h"

#include <check.h>

#include "base/status.h"

dlc_feed *feeds_open(const dlc_feed_args *args) {
    dlc_feed *feed = NULL;
    dlc_status status = dlc_feed_open(args, &feed);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return feed;
}

dlc_batch feeds_next(dlc_feed *feed) {
    dlc_batch batch = {0};
    dlc_status status = dlc_feed_next(feed, &batch);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return batch;
}
