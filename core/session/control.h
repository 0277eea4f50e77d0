/* Per-iteration values that the CPU and a device with a queue exchange without waiting:
 * each iteration in flight has its own slot of host memory, which the queue reads and
 * writes when it gets there. The device's side is at one address, so that work which
 * reads it can be captured.
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_CONTROL_H
#define DLC_SESSION_CONTROL_H

#include <dlcore/consistency.h>

#include "net/net.h"

/* Values for the device. */
typedef struct dlc_control_input {
    dlc_step step;
    dlc_rule_values values;                 /* of the solver */
    float control_words[DLC_CONTROL_WORDS]; /* this rank's, for the end of the gradient
                                            arena */
} dlc_control_input;

enum { DLC_CONTROL_SLOTS = 2 };

/* The last control words: how long the ranks compute and wait for samples. */
enum { DLC_CONTROL_TIMES = 2 };

typedef struct dlc_control_slot {
    dlc_control_input *input;
    float *control_words; /* reduced over all ranks */
    dlc_event *done;
} dlc_control_slot;

/* Initialize with {0}. */
typedef struct dlc_control {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;

    dlc_memory host, device_memory; /* own */
    dlc_control_input *on_device;   /* in device memory; not to be dereferenced */
    dlc_control_slot slot[DLC_CONTROL_SLOTS];
    int64_t submitted, collected; /* iterations since open */
} dlc_control;

/* Allocates memory and events; the fields above must be set. Does nothing without a
 * queue. */
dlc_status dlc_control_open(dlc_control *control);
void dlc_control_close(dlc_control *control); /* a zeroed one is allowed */

/* Iterations that were submitted and whose results were not collected: at most
 * DLC_CONTROL_SLOTS. */
static inline int dlc_control_in_flight(const dlc_control *control) {
    return (int)(control->submitted - control->collected);
}

/* Queues the upload of `input`: the queue's next work belongs to the next iteration. */
dlc_status dlc_control_begin(dlc_control *control, const dlc_control_input *input);
/* Queues the download of the reduced control words (in device memory) and ends the
 * iteration. */
dlc_status dlc_control_end(dlc_control *control, const float *control_words);
/* The event at the end of the oldest iteration in flight, to wait for; then its control
 * words, valid until the slot is used again. */
dlc_event *dlc_control_done(const dlc_control *control);
const float *dlc_control_collect(dlc_control *control);

#endif
