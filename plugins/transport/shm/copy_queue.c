/* Copy queues: queues of a device whose memory the CPU cannot read, with events to wait
 * for a step's copies. A device without queues does everything at once, and there is
 * nothing to wait for. */
#include "shm.h"

dlc_status copy_queue_open(const dlc_endpoint *e, copy_queue *q) {
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;

    if (e->host_memory)
        return DLC_OK;
    dlc_status status = ops->queues->queue_open(device, &q->queue);
    for (int i = 0; i < DEVICE_STEPS && q->queue && status == DLC_OK; i++)
        status = ops->queues->event_open(device, &q->event[i]);
    return status;
}

void copy_queue_close(const dlc_endpoint *e, copy_queue *q) {
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;

    if (!q->queue)
        return;
    ops->queues->queue_close(device, q->queue); /* finishes the queued work first */
    for (int i = 0; i < DEVICE_STEPS; i++)
        if (q->event[i])
            ops->queues->event_close(device, q->event[i]);
    *q = (copy_queue){0};
}

dlc_status copy_queue_add(const dlc_endpoint *e, copy_queue *q, void *dst,
                          const void *src, size_t bytes) {
    const dlc_transport_args *args = e->args;
    if (bytes == 0)
        return DLC_OK;
    q->pending = 1;
    return args->device_ops->copy(args->device, q->queue, dst, src, bytes);
}

dlc_status copy_queue_record(const dlc_endpoint *e, copy_queue *q, uint64_t step) {
    const dlc_transport_args *args = e->args;
    q->pending = 0;
    if (!q->queue)
        return DLC_OK;
    return args->device_ops->queues->event_record(args->device, q->queue,
                                                  q->event[step % DEVICE_STEPS]);
}

/* Polls for spin_us: sleeping and waking up takes longer than short copies do. */
static dlc_status poll_event(const dlc_endpoint *e, dlc_event *event, int *done) {
    const dlc_transport_args *args = e->args;
    uint64_t since = host->now_ns();
    dlc_status status = DLC_OK;

    do
        status = args->device_ops->queues->event_done(args->device, event, done);
    while (status == DLC_OK && !*done && host->now_ns() - since < e->spin_ns);
    return status;
}

dlc_status copy_queue_wait(const dlc_endpoint *e, const copy_queue *q, uint64_t step) {
    const dlc_transport_args *args = e->args;
    dlc_event *event = q->event[step % DEVICE_STEPS];
    int done = 0;

    if (!q->queue)
        return DLC_OK;
    dlc_status status = poll_event(e, event, &done);
    if (status != DLC_OK || done)
        return status;
    return args->device_ops->queues->event_sync(args->device, event);
}

dlc_status copy_queue_drain(const dlc_endpoint *e, const copy_queue *q,
                            dlc_status status) {
    const dlc_transport_args *args = e->args;
    if (!q->queue)
        return status;
    dlc_status drained = args->device_ops->queues->queue_sync(args->device, q->queue);
    return status == DLC_OK ? drained : status;
}
