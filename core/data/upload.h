/* Upload of batches to a device. A device with a queue receives the next batch while it
 * works on this one, on a queue and in memory of its own; other devices read batches
 * where the feed has them.
 *
 * If the feed's batches are bytes, bytes are copied and the device converts them to
 * floats.
 *
 * Threads: the training thread. */
#ifndef DLC_DATA_UPLOAD_H
#define DLC_DATA_UPLOAD_H

#include "data/feed.h"
#include "net/net.h"

enum { DLC_UPLOAD_SLOTS = 2 };

/* A batch on the device, in the feed's format. */
typedef struct dlc_upload_slot {
    dlc_memory field[DLC_NET_FIELDS];
    dlc_event *arrived;   /* on the upload queue */
    dlc_event *collected; /* on the net's queue */
    int is_full, was_used;
    int64_t iteration;
} dlc_upload_slot;

/* Initialize with {0}. */
typedef struct dlc_upload {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue; /* the net's; NULL: no slots */
    dlc_net *net;
    dlc_feed *feed;
    int64_t batch; /* samples */

    dlc_queue *upload_queue; /* own */
    dlc_memory mean, scale;  /* for bytes: of each channel */
    dlc_upload_slot slot[DLC_UPLOAD_SLOTS];
    int at;             /* the next slot */
    dlc_event *copying; /* event of the copy that still reads the feed's batch */
} dlc_upload;

/* Allocates slots and the queue. The fields above must be set by the caller, and
 * outlive it. */
dlc_status dlc_upload_open(dlc_upload *upload);
void dlc_upload_close(dlc_upload *upload); /* a zeroed one is allowed */

/* Makes the next batch the net's input; *iteration is the feed's number of it. */
dlc_status dlc_upload_next(dlc_upload *upload, int64_t *iteration);
/* Starts to copy the batch after that. Blocks until the feed has one. */
dlc_status dlc_upload_prefetch(dlc_upload *upload);

#endif
