/* The stream-ordered exchange: buckets are reduced by work on a queue of their own,
 * beside the one that computes. No CPU thread takes part, nothing blocks, and all of it
 * can be captured. For transports that support queues (dlc_comm_can_queue); used by the
 * exchanger.
 *
 * Threads: the train thread.
 */
#ifndef DLC_COMM_STREAM_ORDERED_H
#define DLC_COMM_STREAM_ORDERED_H

#include "comm/comm.h"

typedef struct dlc_stream_ordered dlc_stream_ordered;

typedef struct dlc_stream_ordered_args {
    dlc_comm *comm;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue; /* the queue that fills the buckets and uses their reductions */
    int32_t buckets;
} dlc_stream_ordered_args;

dlc_status dlc_stream_ordered_open(const dlc_stream_ordered_args *args,
                                   dlc_stream_ordered **exchange);
/* Waits until both queues are idle. NULL is allowed. */
void dlc_stream_ordered_close(dlc_stream_ordered *exchange);

/* A collective on a queue: dlc_comm_queue_all_reduce and its siblings. */
typedef dlc_status dlc_stream_ordered_call(dlc_comm *comm, dlc_queue *queue,
                                           float *buffer, size_t count);
/* Queues a collective on a bucket, behind the work that args.queue holds now. */
dlc_status dlc_stream_ordered_start(dlc_stream_ordered *exchange, int32_t bucket,
                                    dlc_stream_ordered_call *call, float *buffer,
                                    size_t count);
/* Makes later work on args.queue wait for the last collective on the bucket. */
dlc_status dlc_stream_ordered_wait(dlc_stream_ordered *exchange, int32_t bucket);
/* Makes later work on args.queue wait for everything that was started. */
dlc_status dlc_stream_ordered_wait_all(dlc_stream_ordered *exchange);

#endif
