/* Batches on their way to a device. A device with a queue gets the next one while it
 * works on this one, by a queue of its own, into memory of its own; others read batches
 * where the feed left them.
 *
 * Where the feed's batches are bytes, it is bytes that go the way, and the device makes
 * floats of them.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_INTAKE_H
#define DLC_TRAIN_INTAKE_H

#include "net/net.h"
#include "train/feed/feed.h"

enum { DLC_INTAKE_SLOTS = 2 };

/* A batch on the device, as the feed has it. */
typedef struct dlc_intake_slot {
    dlc_memory data, labels;
    dlc_event *arrived; /* on the intake's queue */
    dlc_event *taken;   /* on the net's */
    int is_full, was_taken;
    int64_t iteration;
} dlc_intake_slot;

/* Start with {0}. */
typedef struct dlc_intake {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue; /* the net's; NULL: no slots */
    dlc_net *net;
    dlc_feed *feed;
    int64_t batch; /* samples */

    dlc_queue *upload; /* own */
    dlc_memory mean;   /* of bytes: one float a channel */
    dlc_intake_slot slot[DLC_INTAKE_SLOTS];
    int at;             /* the slot that comes next */
    dlc_event *reading; /* of the slot that the feed's batch is being read for */
} dlc_intake;

/* Fills in what is the intake's own; the fields above it are set by the caller, and
 * outlive it. */
dlc_status dlc_intake_open(dlc_intake *intake);
void dlc_intake_close(dlc_intake *intake); /* a zeroed one is allowed */

/* Shows the net its next batch; *iteration is the feed's. */
dlc_status dlc_intake_next(dlc_intake *intake, int64_t *iteration);
/* Begins to bring the one after it. Blocks while the feed has none. */
dlc_status dlc_intake_ahead(dlc_intake *intake);

#endif
