/* Notices when iterations take several times as long as they did before, as when a link
 * of the network falls to a slower rate, and when that is over.
 *
 * The usual time is the best mean of some iterations in a row. A few slow iterations
 * are no reason for a warning: several in a row have to cost seconds.
 *
 * Threads: the train thread. */
#ifndef DLC_TRAIN_SLOWDOWN_H
#define DLC_TRAIN_SLOWDOWN_H

#include <stdint.h>

#include "base/text.h"

/* What an iteration took. The last two are about the greatest of any rank. */
typedef struct dlc_iteration_time {
    double seconds;
    double computed; /* forward and backward; 0: unknown */
    double data;     /* waiting for samples */
} dlc_iteration_time;

enum { DLC_SLOWDOWN_WINDOW = 10 };

/* Initialize with {0}. */
typedef struct dlc_slowdown {
    dlc_iteration_time usual; /* 0 s: not known yet */
    dlc_iteration_time sum;   /* of the iterations of the current window */
    int32_t count;            /* of them */

    int is_slow;             /* a warning was given */
    dlc_iteration_time slow; /* sum of `row` */
    int32_t row; /* iterations in a row that are slow, or while `is_slow` are not */
} dlc_slowdown;

typedef enum dlc_slowdown_news {
    DLC_SLOWDOWN_NONE,
    DLC_SLOWDOWN_BEGINS,
    DLC_SLOWDOWN_ENDS
} dlc_slowdown_news;

/* Takes note of an iteration. Where there is news, appends a sentence about it; a rank
 * of several knows its `transport`, which is NULL for one that is alone. */
dlc_slowdown_news dlc_slowdown_note(dlc_slowdown *slowdown,
                                    const dlc_iteration_time *time,
                                    const char *transport, dlc_text *text);

/* Control words carry sums over the ranks. The sum of these powers tells about the
 * greatest of the numbers: at most 1.7 times as much for 64 ranks. */
float dlc_slowdown_power(double seconds);
double dlc_slowdown_root(float sum);

#endif
