/* The stream-ordered exchange: a queue of its own, joined to the computing queue by an
 * event per bucket in each direction. */
#include "comm/stream_ordered.h"

#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/device_objects.h"

struct dlc_stream_ordered {
    dlc_stream_ordered_args args;
    dlc_queue *queue;          /* owned; the exchange's */
    dlc_event **ready, **done; /* owned; per bucket: it is filled, it is reduced */
    dlc_event *all_done;       /* owned */
};

static dlc_status open_events(dlc_stream_ordered *exchange) {
    const dlc_stream_ordered_args *args = &exchange->args;
    size_t buckets = (size_t)args->buckets;

    exchange->ready = dlc_alloc(buckets, sizeof(dlc_event *));
    exchange->done = dlc_alloc(buckets, sizeof(dlc_event *));
    if (!exchange->ready || !exchange->done)
        return DLC_ERR_NOMEM;
    for (size_t b = 0; b < buckets; b++) {
        DLC_TRY(
            dlc_device_open_event(args->device_ops, args->device, &exchange->ready[b]));
        DLC_TRY(
            dlc_device_open_event(args->device_ops, args->device, &exchange->done[b]));
    }
    return dlc_device_open_event(args->device_ops, args->device, &exchange->all_done);
}

dlc_status dlc_stream_ordered_open(const dlc_stream_ordered_args *args,
                                   dlc_stream_ordered **exchange) {
    dlc_stream_ordered *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = dlc_device_open_queue(args->device_ops, args->device,
                                              &made->queue);
    if (status == DLC_OK)
        status = open_events(made);
    if (status != DLC_OK) {
        dlc_stream_ordered_close(made);
        return status;
    }
    *exchange = made;
    return DLC_OK;
}

static void close_events(const dlc_stream_ordered *exchange, dlc_event **event) {
    const dlc_stream_ordered_args *args = &exchange->args;
    for (int32_t b = 0; event && b < args->buckets; b++)
        if (event[b])
            args->device_ops->queues->event_close(args->device, event[b]);
    dlc_free(event);
}

/* Waits until a queue is idle; it may hold captured graphs. A transport abandons work
 * that waits for a dead peer only when polled, so it is polled meanwhile, even after an
 * error. */
static void drain(const dlc_stream_ordered *exchange, dlc_queue *queue) {
    const dlc_stream_ordered_args *args = &exchange->args;
    const dlc_device_ops *ops = args->device_ops;
    const struct timespec pause = {.tv_nsec = 100000};
    int done = 0;

    if (ops->queues->event_record(args->device, queue, exchange->all_done) != DLC_OK)
        return;
    while (ops->queues->event_done(args->device, exchange->all_done, &done) == DLC_OK &&
           !done) {
        (void)dlc_comm_poll(args->comm);
        (void)nanosleep(&pause, NULL);
    }
}

void dlc_stream_ordered_close(dlc_stream_ordered *exchange) {
    if (!exchange)
        return;
    const dlc_stream_ordered_args *args = &exchange->args;
    /* No memory may be freed while a queue may use it. */
    if (exchange->all_done) {
        drain(exchange, exchange->queue);
        drain(exchange, args->queue);
    }
    close_events(exchange, exchange->ready);
    close_events(exchange, exchange->done);
    if (exchange->all_done)
        args->device_ops->queues->event_close(args->device, exchange->all_done);
    if (exchange->queue)
        args->device_ops->queues->queue_close(args->device, exchange->queue);
    dlc_free(exchange);
}

dlc_status dlc_stream_ordered_start(dlc_stream_ordered *exchange, int32_t bucket,
                                    dlc_stream_ordered_call *call, float *buffer,
                                    size_t count) {
    const dlc_stream_ordered_args *args = &exchange->args;
    const dlc_device_ops *ops = args->device_ops;

    DLC_TRY(
        ops->queues->event_record(args->device, args->queue, exchange->ready[bucket]));
    DLC_TRY(ops->queues->event_wait(args->device, exchange->queue,
                                    exchange->ready[bucket]));
    DLC_TRY(call(args->comm, exchange->queue, buffer, count));
    return ops->queues->event_record(args->device, exchange->queue,
                                     exchange->done[bucket]);
}

dlc_status dlc_stream_ordered_wait(dlc_stream_ordered *exchange, int32_t bucket) {
    const dlc_stream_ordered_args *args = &exchange->args;
    return args->device_ops->queues->event_wait(args->device, args->queue,
                                                exchange->done[bucket]);
}

dlc_status dlc_stream_ordered_wait_all(dlc_stream_ordered *exchange) {
    const dlc_stream_ordered_args *args = &exchange->args;
    const dlc_device_ops *ops = args->device_ops;
    DLC_TRY(
        ops->queues->event_record(args->device, exchange->queue, exchange->all_done));
    return ops->queues->event_wait(args->device, args->queue, exchange->all_done);
}
