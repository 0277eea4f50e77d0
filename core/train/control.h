/* What the processor and a device with a queue tell each other about an iteration,
 * without waiting: each has its own lane of host memory, which the queue reads and
 * writes when the iteration's turn comes. The device's side lies at one place, so that
 * work which reads it can be recorded.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_CONTROL_H
#define DLC_TRAIN_CONTROL_H

#include "net/net.h"

/* To the device. */
typedef struct dlc_control_in {
    dlc_step step;
    float rate;
    float tail[DLC_ARENA_TAIL]; /* of the gradient arena: this rank's words */
} dlc_control_in;

enum { DLC_CONTROL_LANES = 2 };

typedef struct dlc_control_lane {
    dlc_control_in *in;
    float *tail; /* the sums over all ranks */
    dlc_event *done;
} dlc_control_lane;

/* Start with {0}. */
typedef struct dlc_control {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;

    dlc_memory host, far; /* own */
    dlc_control_in *at;   /* the device's side; an address to hand on only */
    dlc_control_lane lane[DLC_CONTROL_LANES];
    int64_t given, taken; /* iterations since open */
} dlc_control;

/* Fills in what is the control's own. */
dlc_status dlc_control_open(dlc_control *control);
void dlc_control_close(dlc_control *control); /* a zeroed one is allowed */

/* Iterations that were given to the queue and whose results have not been taken: at
 * most DLC_CONTROL_LANES. */
static inline int dlc_control_under_way(const dlc_control *control) {
    return (int)(control->given - control->taken);
}

/* The queue's next work belongs to an iteration, with this to go by. */
dlc_status dlc_control_begin(dlc_control *control, const dlc_control_in *in);
/* Its work is done when the queue has come here; `tail` is in device memory. */
dlc_status dlc_control_end(dlc_control *control, const float *tail);
/* The event at the end of the oldest iteration under way, to wait for; then its tail.
 */
dlc_event *dlc_control_done(const dlc_control *control);
const float *dlc_control_take(dlc_control *control);

#endif
