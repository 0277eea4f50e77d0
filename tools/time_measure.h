/* Passes of a net's training, measured part by part. */
#ifndef DLC_TOOLS_TIME_MEASURE_H
#define DLC_TOOLS_TIME_MEASURE_H

#include "time_table.h"
#include "train/intake.h"
#include "train/session.h"

enum { TIME_PASSES_MOST = 100000 };

/* The next batch forward and backward, as in training; on a device with a queue it may
 * still be under way. `start`: when it began, as dlc_now_ns. The batch is there by
 * then: in training it comes beside the pass before. */
dlc_status dlc_time_pass(const dlc_session *session, dlc_intake *intake,
                         int64_t iteration, uint64_t *start);

/* What was measured: `row` and `update` as dlc_time_table_make takes them. Begin with
 * {0}; free with dlc_time_measured_free, before the session is closed. */
typedef struct dlc_time_measured {
    dlc_net_row *row;
    dlc_net_work *update;
    dlc_time_samples samples;
} dlc_time_measured;

/* Warms up, then measures `passes` passes; with 0 as many as there is patience for: 50,
 * or as many as 10 s take, but 5 at least. SIGINT ends it early, with what there is. */
dlc_status dlc_time_measure(dlc_session *session, int passes,
                            dlc_time_measured *measured);
void dlc_time_measured_free(dlc_time_measured *measured);

#endif
