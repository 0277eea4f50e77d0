/* Measures training passes of a net, part by part. Called by `dlcore time` and `dlcore
 * plan`. */
#ifndef DLC_TOOLS_TIME_MEASURE_H
#define DLC_TOOLS_TIME_MEASURE_H

#include "data/upload.h"
#include "session/session.h"
#include "time_table.h"

enum { TIME_MAX_PASSES = 100000 };

/* Runs forward and backward of the next batch, as in training; on a device with a queue
 * they may still be in flight afterwards. *start is when it began (dlc_now_ns), after
 * the batch was read: in training that overlaps with the previous pass. */
dlc_status dlc_time_pass(const dlc_session *session, dlc_upload *upload,
                         int64_t iteration, uint64_t *start);

/* Measurements; `row` and `update` are those of dlc_time_table_make. Start with {0};
 * release with dlc_time_measured_free before the session is closed. */
typedef struct dlc_time_measured {
    dlc_net_row *row;
    dlc_net_work *update;
    dlc_time_samples samples;
} dlc_time_measured;

/* Warms up, then measures `passes` passes; 0: 50, or as many as take 10 s, at least 5.
 * SIGINT ends it early, with the passes measured so far. */
dlc_status dlc_time_measure(dlc_session *session, int passes,
                            dlc_time_measured *measured);
void dlc_time_measured_free(dlc_time_measured *measured);

/* Measures the samples per second that the feed delivers while nothing else runs,
 * without the batches that it had ready. */
dlc_status dlc_time_feed(const dlc_session *session, double *images);

#endif
