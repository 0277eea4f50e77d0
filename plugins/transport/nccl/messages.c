/* Messages, as far as NCCL supports them.
 *
 * NCCL has no tags: between two ranks messages match in order, and a group of calls
 * must complete before the next one begins. So messages are collected, and all pending
 * ones are started in one group when the caller waits for one. This works where all
 * ranks run in lockstep: each receives from a peer in the order in which that peer
 * sends, whatever the tags, and posts everything that its peers need before it waits.
 * The collectives and the barrier that the core builds from messages do so. Other
 * programs may hang until the job ends, and need another transport.
 */
#include "nccl_transport.h"

/* Messages that were started in one group. */
struct batch {
    dlc_event *event; /* owned */
    int32_t refs;     /* requests that have not seen it done */
};

struct dlc_request {
    dlc_request *next;
    batch *batch; /* NULL: not started yet */
    int32_t peer;
    int is_send;
    void *buffer;
    size_t bytes;
};

static dlc_status add(dlc_endpoint *e, const dlc_request *what, dlc_request **request) {
    dlc_status status = endpoint_check(e);
    if (status != DLC_OK)
        return status;
    dlc_request *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = *what;
    made->next = e->requests;
    /* A message of 0 bytes sends one byte of ours, so that the receiver waits for the
     * sender. */
    if (made->bytes == 0) {
        made->buffer = (char *)e->token.base + (made->is_send ? 0 : 1);
        made->bytes = 1;
    }
    e->requests = made;
    *request = made;
    return DLC_OK;
}

dlc_status message_send(dlc_endpoint *e, int32_t peer, dlc_tag tag, const void *buffer,
                        size_t bytes, dlc_request **request) {
    (void)tag;
    return add(e,
               &(dlc_request){.peer = peer,
                              .is_send = 1,
                              .buffer = (void *)(uintptr_t)buffer,
                              .bytes = bytes},
               request);
}

dlc_status message_recv(dlc_endpoint *e, int32_t peer, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request) {
    (void)tag;
    return add(e, &(dlc_request){.peer = peer, .buffer = buffer, .bytes = bytes},
               request);
}

static void batch_release(dlc_endpoint *e, batch *b) {
    if (!b || --b->refs > 0)
        return;
    if (b->event)
        e->args->device_ops->queues->event_close(e->args->device, b->event);
    host->free(b);
}

/* The list is newest first; NCCL needs them in order. */
static ncclResult_t start_in_order(dlc_endpoint *e, dlc_request *newest, batch *b) {
    dlc_request *reversed = NULL, *next = NULL;
    ncclResult_t result = ncclSuccess;

    for (dlc_request *r = newest; r && !r->batch; r = next) {
        next = r->next;
        r->next = reversed;
        reversed = r;
    }
    dlc_request *rest = next;
    for (dlc_request *r = reversed; r; r = next) {
        if (result == ncclSuccess)
            result = r->is_send ? nccl.Send(r->buffer, r->bytes, ncclUint8, r->peer,
                                            e->comm, e->stream)
                                : nccl.Recv(r->buffer, r->bytes, ncclUint8, r->peer,
                                            e->comm, e->stream);
        r->batch = b;
        b->refs++;
        next = r->next;
        r->next = rest; /* back to newest first */
        rest = r;
    }
    e->requests = rest;
    return result;
}

static dlc_status flush(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    dlc_status status = endpoint_check(e);
    if (status != DLC_OK || !e->requests || e->requests->batch)
        return status;
    batch *b = host->alloc(sizeof *b);
    if (!b)
        return DLC_ERR_NOMEM;
    b->refs = 1;
    status = args->device_ops->queues->event_open(args->device, &b->event);
    if (status == DLC_OK) {
        ncclResult_t result = nccl.GroupStart();
        if (result == ncclSuccess)
            result = start_in_order(e, e->requests, b);
        ncclResult_t ended = nccl.GroupEnd();
        int started = result == ncclSuccess || result == ncclInProgress;
        status = endpoint_await(e, started ? ended : result, "pass messages");
    }
    if (status == DLC_OK)
        status = args->device_ops->queues->event_record(args->device, e->queue,
                                                        b->event);
    batch_release(e, b);
    return status;
}

static void request_free(dlc_endpoint *e, dlc_request *request) {
    dlc_request **at = &e->requests;
    while (*at && *at != request)
        at = &(*at)->next;
    if (*at)
        *at = request->next;
    batch_release(e, request->batch);
    host->free(request);
}

dlc_status request_test(dlc_endpoint *e, dlc_request *request, int *done) {
    dlc_status status = flush(e);
    if (status == DLC_OK)
        status = e->args->device_ops->queues->event_done(e->args->device,
                                                         request->batch->event, done);
    if (status != DLC_OK)
        return status;
    if (*done)
        request_free(e, request);
    else
        status = endpoint_poll(e);
    return status;
}

dlc_status request_wait(dlc_endpoint *e, dlc_request *request) {
    dlc_status status = flush(e);
    if (status == DLC_OK)
        status = wait_for(e, request->batch->event, "messages");
    if (status == DLC_OK)
        request_free(e, request);
    return status;
}

void messages_close(dlc_endpoint *e) {
    while (e->requests)
        request_free(e, e->requests);
}
