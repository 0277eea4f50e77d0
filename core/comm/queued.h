/* The exchange as work on a queue of the device's own, beside the one that computes: no
 * thread of the processor takes part, nobody blocks, and all of it can be recorded. For
 * transports that can (dlc_comm_can_queue).
 *
 * Threads: the train thread.
 */
#ifndef DLC_COMM_QUEUED_H
#define DLC_COMM_QUEUED_H

#include "comm/comm.h"

typedef struct dlc_queued dlc_queued;

typedef struct dlc_queued_args {
    dlc_comm *comm;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue; /* that fills the buckets, and reads their sums */
    int32_t buckets;
} dlc_queued_args;

dlc_status dlc_queued_open(const dlc_queued_args *args, dlc_queued **queued);
void dlc_queued_close(dlc_queued *queued); /* NULL allowed */

/* What may be done with a bucket, once what the queue has to do now is done. */
typedef dlc_status dlc_queued_call(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                   size_t count);
dlc_status dlc_queued_start(dlc_queued *queued, int32_t bucket, dlc_queued_call *call,
                            float *buffer, size_t count);
/* What the queue does next comes after what was started with the bucket last. */
dlc_status dlc_queued_wait(dlc_queued *queued, int32_t bucket);
/* After all that was started. */
dlc_status dlc_queued_wait_all(dlc_queued *queued);

#endif
