/* Lanes: queues of a device whose memory the processor cannot read. A device without
 * queues does everything at once, and its lanes have nothing to wait for. */
#include "shm.h"

dlc_status lane_open(const dlc_endpoint *e, lane *l) {
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;

    if (e->host_memory)
        return DLC_OK;
    dlc_status status = ops->queue_open(device, &l->queue);
    for (int i = 0; i < FAR_STEPS && l->queue && status == DLC_OK; i++)
        status = ops->event_open(device, &l->event[i]);
    return status;
}

void lane_close(const dlc_endpoint *e, lane *l) {
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;

    if (!l->queue)
        return;
    ops->queue_close(device, l->queue); /* what is in it is done first */
    for (int i = 0; i < FAR_STEPS; i++)
        if (l->event[i])
            ops->event_close(device, l->event[i]);
    *l = (lane){0};
}

dlc_status lane_copy(const dlc_endpoint *e, lane *l, void *dst, const void *src,
                     size_t bytes) {
    const dlc_transport_args *args = e->args;
    if (bytes == 0)
        return DLC_OK;
    l->given = 1;
    return args->device_ops->copy(args->device, l->queue, dst, src, bytes);
}

dlc_status lane_mark(const dlc_endpoint *e, lane *l, uint64_t turn) {
    const dlc_transport_args *args = e->args;
    l->given = 0;
    if (!l->queue)
        return DLC_OK;
    return args->device_ops->event_record(args->device, l->queue,
                                          l->event[turn % FAR_STEPS]);
}

/* Short work is looked for, since to be woken takes longer than that. */
static dlc_status look_for(const dlc_endpoint *e, dlc_event *event, int *done) {
    const dlc_transport_args *args = e->args;
    uint64_t since = host->now_ns();
    dlc_status status = DLC_OK;

    do
        status = args->device_ops->event_done(args->device, event, done);
    while (status == DLC_OK && !*done && host->now_ns() - since < e->spin_ns);
    return status;
}

dlc_status lane_await(const dlc_endpoint *e, const lane *l, uint64_t turn) {
    const dlc_transport_args *args = e->args;
    dlc_event *event = l->event[turn % FAR_STEPS];
    int done = 0;

    if (!l->queue)
        return DLC_OK;
    dlc_status status = look_for(e, event, &done);
    if (status != DLC_OK || done)
        return status;
    if (DLC_CAN(args->device_ops, event_sync))
        return args->device_ops->event_sync(args->device, event);
    return args->device_ops->queue_sync(args->device, l->queue);
}

dlc_status lane_settle(const dlc_endpoint *e, const lane *l, dlc_status status) {
    const dlc_transport_args *args = e->args;
    if (!l->queue)
        return status;
    dlc_status settled = args->device_ops->queue_sync(args->device, l->queue);
    return status == DLC_OK ? settled : status;
}
