/* One iteration: a batch forward and backward, gradients exchanged, weights updated.
 *
 * On a device without a queue it is done when dlc_iterate_begin returns. With one it is
 * given to the queue, and the processor goes on to prepare the next while the device is
 * at work; from the third on the whole of it is a recording, where all that it does can
 * be recorded.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_ITERATE_H
#define DLC_TRAIN_ITERATE_H

#include "train/intake.h"
#include "train/session.h"

/* What the ranks have agreed on with an iteration. */
typedef struct dlc_iterate_result {
    double loss;                  /* mean over the global batch */
    double own_loss;              /* this rank's part of it; 0 where a queue has it */
    int stop, checkpoint, change; /* some rank was asked to */
} dlc_iterate_result;

typedef struct dlc_iterate {
    dlc_session *session;
    dlc_intake intake;
    int64_t begun; /* iterations since open */

    dlc_recording *recording;
    int may_record;

    /* Of the iteration that is begun. */
    int32_t micro, bucket; /* next bucket to become ready */
    double loss;
    int has_result; /* without a queue */
    unsigned ask;   /* what this rank asks for by itself, with its next words */

    /* Seconds with samples since it was asked; of these, with the exchange. */
    double computed, handed;
} dlc_iterate;

/* The way that this session's batches take, for who makes passes without iterations; to
 * be opened. */
dlc_intake dlc_iterate_intake(const dlc_session *session);

dlc_status dlc_iterate_open(dlc_session *session, dlc_iterate *iterate);
void dlc_iterate_close(dlc_iterate *iterate); /* a zeroed one is allowed */

/* Iterations that may be under way at once. */
int dlc_iterate_depth(const dlc_iterate *iterate);
int dlc_iterate_under_way(const dlc_iterate *iterate);

/* Begins the session's next iteration and counts it; fewer than `depth` are under way.
 */
dlc_status dlc_iterate_begin(dlc_iterate *iterate);
/* Without a queue: seconds that passes have taken since this was last asked, but for
 * what was exchanged and updated meanwhile. */
double dlc_iterate_computed(dlc_iterate *iterate);
/* Until the oldest that is under way is done. */
dlc_status dlc_iterate_end(dlc_iterate *iterate, dlc_iterate_result *result);

#endif
