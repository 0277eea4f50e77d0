/* Messages, as far as NCCL has them.
 *
 * It has no tags: between two ranks messages match in order. And what one group of its
 * calls has begun must end before the next begins. So messages are gathered, and those
 * that are waiting go in one group when somebody waits for one. This holds where all
 * ranks work in step: each receives from a peer in the order in which that one sends,
 * whatever the tags, and begins all that its peers need before it waits. That is how
 * the collectives that are made from messages, and a barrier, do it. Other programs may
 * wait for ever, until the job ends: they need another transport.
 */
#include "nccl_transport.h"

/* Messages that went together. */
struct batch {
    dlc_event *event; /* own */
    int32_t refs;     /* requests that have not seen it done */
};

struct dlc_request {
    dlc_request *next;
    batch *batch; /* NULL: not given to NCCL yet */
    int32_t peer;
    int is_send;
    void *buffer;
    size_t bytes;
};

static dlc_status add(dlc_endpoint *e, const dlc_request *what, dlc_request **request) {
    dlc_status status = endpoint_good(e);
    if (status != DLC_OK)
        return status;
    dlc_request *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = *what;
    made->next = e->requests;
    /* Of no bytes: one of ours, so that who waits for it waits for the peer. */
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

static void let_go(dlc_endpoint *e, batch *b) {
    if (!b || --b->refs > 0)
        return;
    if (b->event)
        e->args->device_ops->event_close(e->args->device, b->event);
    host->free(b);
}

/* The list has the newest first, NCCL is to have them in order. */
static ncclResult_t give_in_order(dlc_endpoint *e, dlc_request *newest, batch *b) {
    cudaStream_t stream = dlc_cuda_stream(e->queue);
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
                                            e->comm, stream)
                                : nccl.Recv(r->buffer, r->bytes, ncclUint8, r->peer,
                                            e->comm, stream);
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
    dlc_status status = endpoint_good(e);
    if (status != DLC_OK || !e->requests || e->requests->batch)
        return status;
    batch *b = host->alloc(sizeof *b);
    if (!b)
        return DLC_ERR_NOMEM;
    b->refs = 1;
    status = args->device_ops->event_open(args->device, &b->event);
    if (status == DLC_OK) {
        ncclResult_t result = nccl.GroupStart();
        if (result == ncclSuccess)
            result = give_in_order(e, e->requests, b);
        ncclResult_t ended = nccl.GroupEnd();
        int went = result == ncclSuccess || result == ncclInProgress;
        status = endpoint_took(e, went ? ended : result, "pass messages");
    }
    if (status == DLC_OK)
        status = args->device_ops->event_record(args->device, e->queue, b->event);
    let_go(e, b);
    return status;
}

static void release(dlc_endpoint *e, dlc_request *request) {
    dlc_request **at = &e->requests;
    while (*at && *at != request)
        at = &(*at)->next;
    if (*at)
        *at = request->next;
    let_go(e, request->batch);
    host->free(request);
}

dlc_status request_test(dlc_endpoint *e, dlc_request *request, int *done) {
    dlc_status status = flush(e);
    if (status == DLC_OK)
        status = e->args->device_ops->event_done(e->args->device, request->batch->event,
                                                 done);
    if (status != DLC_OK)
        return status;
    if (*done)
        release(e, request);
    else
        status = endpoint_poll(e);
    return status;
}

dlc_status request_wait(dlc_endpoint *e, dlc_request *request) {
    dlc_status status = flush(e);
    if (status == DLC_OK)
        status = wait_for(e, request->batch->event, "messages");
    if (status == DLC_OK)
        release(e, request);
    return status;
}

void messages_close(dlc_endpoint *e) {
    while (e->requests)
        release(e, e->requests);
}
