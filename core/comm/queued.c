/* See queued.h. */
#include "comm/queued.h"

#include <time.h>

#include "base/memory.h"
#include "base/status.h"

struct dlc_queued {
    dlc_queued_args args;
    dlc_queue *queue;          /* own: the exchange's */
    dlc_event **given, **done; /* own; of each bucket, on either queue */
    dlc_event *all_done;       /* own */
};

static dlc_status open_events(dlc_queued *queued) {
    const dlc_queued_args *args = &queued->args;
    size_t buckets = (size_t)args->buckets;

    queued->given = dlc_alloc(buckets, sizeof(dlc_event *));
    queued->done = dlc_alloc(buckets, sizeof(dlc_event *));
    if (!queued->given || !queued->done)
        return DLC_ERR_NOMEM;
    for (size_t b = 0; b < buckets; b++) {
        DLC_TRY(args->device_ops->event_open(args->device, &queued->given[b]));
        DLC_TRY(args->device_ops->event_open(args->device, &queued->done[b]));
    }
    return args->device_ops->event_open(args->device, &queued->all_done);
}

dlc_status dlc_queued_open(const dlc_queued_args *args, dlc_queued **queued) {
    dlc_queued *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = args->device_ops->queue_open(args->device, &made->queue);
    if (status == DLC_OK)
        status = open_events(made);
    if (status != DLC_OK) {
        dlc_queued_close(made);
        return status;
    }
    *queued = made;
    return DLC_OK;
}

static void close_events(const dlc_queued *queued, dlc_event **event) {
    const dlc_queued_args *args = &queued->args;
    for (int32_t b = 0; event && b < args->buckets; b++)
        if (event[b])
            args->device_ops->event_close(args->device, event[b]);
    dlc_free(event);
}

/* Until a queue has done what it was given, of which recordings may be part. What
 * waits for a peer that has gone is given up by the transport, once it finds that out:
 * so it is asked all the while, also behind an error. */
static void drain(const dlc_queued *queued, dlc_queue *queue) {
    const dlc_queued_args *args = &queued->args;
    const dlc_device_ops *ops = args->device_ops;
    const struct timespec pause = {.tv_nsec = 100000};
    int done = 0;

    if (ops->event_record(args->device, queue, queued->all_done) != DLC_OK)
        return;
    while (ops->event_done(args->device, queued->all_done, &done) == DLC_OK && !done) {
        (void)dlc_comm_poll(args->comm);
        (void)nanosleep(&pause, NULL);
    }
}

void dlc_queued_close(dlc_queued *queued) {
    if (!queued)
        return;
    const dlc_queued_args *args = &queued->args;
    /* Nobody's memory is let go of while a queue may work in it. */
    if (queued->all_done) {
        drain(queued, queued->queue);
        drain(queued, args->queue);
    }
    close_events(queued, queued->given);
    close_events(queued, queued->done);
    if (queued->all_done)
        args->device_ops->event_close(args->device, queued->all_done);
    if (queued->queue)
        args->device_ops->queue_close(args->device, queued->queue);
    dlc_free(queued);
}

dlc_status dlc_queued_start(dlc_queued *queued, int32_t bucket, dlc_queued_call *call,
                            float *buffer, size_t count) {
    const dlc_queued_args *args = &queued->args;
    const dlc_device_ops *ops = args->device_ops;

    DLC_TRY(ops->event_record(args->device, args->queue, queued->given[bucket]));
    DLC_TRY(ops->event_wait(args->device, queued->queue, queued->given[bucket]));
    DLC_TRY(call(args->comm, queued->queue, buffer, count));
    return ops->event_record(args->device, queued->queue, queued->done[bucket]);
}

dlc_status dlc_queued_wait(dlc_queued *queued, int32_t bucket) {
    const dlc_queued_args *args = &queued->args;
    return args->device_ops->event_wait(args->device, args->queue,
                                        queued->done[bucket]);
}

dlc_status dlc_queued_wait_all(dlc_queued *queued) {
    const dlc_queued_args *args = &queued->args;
    const dlc_device_ops *ops = args->device_ops;
    DLC_TRY(ops->event_record(args->device, queued->queue, queued->all_done));
    return ops->event_wait(args->device, args->queue, queued->all_done);
}
