/* Requests, and the calls that make them. */
#include <inttypes.h>
#include <string.h>

#include "ucx.h"

/* What UCX can send without a request of its own, mostly. */
enum { SHORT = 64 };

void queue_add(queue *q, dlc_request *r) {
    r->next = NULL;
    if (q->last)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
}

dlc_request *of_number(const queue *q, uint32_t number) {
    dlc_request *r = q->first;
    while (r && r->header.number != number)
        r = r->next;
    return r;
}

void queue_remove(queue *q, dlc_request *r) {
    dlc_request *before = NULL;
    for (dlc_request *at = q->first; at != r; at = at->next)
        before = at;
    if (before)
        before->next = r->next;
    else
        q->first = r->next;
    if (q->last == r)
        q->last = before;
}

/* Header, `sent` and `broken` are for whom it is for to write. */
dlc_request *request_new(dlc_endpoint *e, int32_t to, size_t bytes) {
    dlc_request *r = e->free;
    if (r) {
        e->free = r->next;
    } else {
        r = host->alloc(sizeof *r);
        if (!r)
            return NULL;
        r->made = e->made;
        e->made = r;
        r->endpoint = e;
    }
    r->bytes = bytes;
    r->moved = 0;
    r->peer = to;
    r->done = 0;
    r->status = DLC_OK;
    r->chunks = 0;
    r->wanted = 0;
    r->listed = 0;
    r->pieces = NULL;
    return r;
}

void request_free(dlc_endpoint *e, dlc_request *r) {
    if (r == &e->gone)
        return;
    r->next = e->free;
    e->free = r;
}

void requests_close(dlc_endpoint *e) {
    while (e->made) {
        dlc_request *r = e->made;
        e->made = r->made;
        host->free(r);
    }
}

ucp_request_param_t how_to_send(const dlc_endpoint *e, ucp_send_nbx_callback_t done,
                                void *context) {
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA,
                               .cb.send = done,
                               .user_data = context,
                               .memory_type = UCS_MEMORY_TYPE_HOST};
    if (e->near || e->staged) /* else UCX finds out */
        how.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    return how;
}

ucs_status_t send_word(const dlc_endpoint *e, int32_t to, unsigned id,
                       const void *words, size_t bytes) {
    ucp_request_param_t how = {0};
    ucs_status_ptr_t request = ucx.am_send_nbx(e->peers[to].ep, id, words, bytes, NULL,
                                               0, &how);
    if (UCS_PTR_IS_PTR(request))
        ucx.request_free(request); /* once it is done */
    return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK;
}

/* ---- Out -------------------------------------------------------------------- */

static void sent(void *request, ucs_status_t status, void *context) {
    dlc_request *r = context;
    if (status != UCS_OK) {
        r->status = DLC_ERR_PEER;
        r->broken = status;
    }
    r->done = 1;
    r->endpoint->unsent--;
    ucx.request_free(request);
}

/* Short ones mostly leave at once. Then they need no request of their own, and without
 * one go at more than twice the rate. */
static int send_short(const dlc_endpoint *e, ucp_ep_h ep, const header *head,
                      const void *buffer, size_t bytes) {
    static const ucp_request_param_t now_or_never = {
        .op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};
    return bytes <= SHORT && e->near && !e->staged &&
           ucx.am_send_nbx(ep, MESSAGE_ID, head, WHOLE_HEADER, buffer, bytes,
                           &now_or_never) == NULL;
}

static dlc_status send_whole(dlc_endpoint *e, ucp_ep_h ep, dlc_request *r) {
    ucp_request_param_t how = how_to_send(e, sent, r);
    ucs_status_ptr_t request = ucx.am_send_nbx(ep, MESSAGE_ID, &r->header, WHOLE_HEADER,
                                               r->source, r->bytes, &how);
    if (UCS_PTR_IS_PTR(request)) {
        e->unsent++;
        return DLC_OK;
    }
    if (UCS_PTR_IS_ERR(request))
        return endpoint_lost(e, r->peer, UCS_PTR_STATUS(request));
    r->done = 1;
    return DLC_OK;
}

static dlc_status send_in_chunks(dlc_endpoint *e, dlc_request *r) {
    int moved;
    e->unsent++;
    chunks_queue(e, r);
    return chunks_push(e, r->peer, &moved);
}

static int in_chunks(const dlc_endpoint *e, int32_t to, size_t bytes) {
    return e->staged || (e->peers[to].stream && bytes > STREAM_CHUNK);
}

dlc_status message_send(dlc_endpoint *e, int32_t to, dlc_tag tag, const void *buffer,
                        size_t bytes, dlc_request **request) {
    ucp_ep_h ep;
    dlc_status status = endpoint_reach(e, to, &ep);
    if (status != DLC_OK)
        return status;
    header head = {
        .tag = tag, .bytes = bytes, .number = e->peers[to].sent, .from = e->rank};
    if (send_short(e, ep, &head, buffer, bytes)) {
        e->peers[to].sent++;
        *request = &e->gone;
        return DLC_OK;
    }
    dlc_request *r = request_new(e, to, bytes);
    if (!r)
        return DLC_ERR_NOMEM;
    r->kind = SEND;
    r->source = buffer;
    r->header = head;
    e->peers[to].sent++;
    status = in_chunks(e, to, bytes) ? send_in_chunks(e, r) : send_whole(e, ep, r);
    if (status != DLC_OK)
        return status; /* the request stays the endpoint's */
    *request = r;
    return DLC_OK;
}

/* ---- In --------------------------------------------------------------------- */

dlc_status message_recv(dlc_endpoint *e, int32_t from, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request) {
    if (from < 0 || from >= e->ranks)
        return host->fail(DLC_ERR_CONFIG, "there is no rank %d among %d", from,
                          e->ranks);
    dlc_request *r = request_new(e, from, bytes);
    if (!r)
        return DLC_ERR_NOMEM;
    r->kind = RECEIVE;
    r->target = buffer;
    r->header.tag = tag;
    dlc_status status = arrivals_claim(e, r);
    if (status != DLC_OK)
        return status;
    *request = r;
    return DLC_OK;
}

/* ---- Done? ------------------------------------------------------------------- */

static dlc_status finish(dlc_endpoint *e, dlc_request *r) {
    dlc_status status = r->status;

    if (status == DLC_ERR_CONFIG)
        status = host->fail(status,
                            "message from rank %d to rank %d, tag %" PRIu64
                            ": %zu bytes were sent, %zu are expected",
                            r->peer, e->rank, r->header.tag, r->sent, r->bytes);
    else if (status == DLC_ERR_PEER)
        status = endpoint_lost(e, r->peer, r->broken);
    request_free(e, r);
    return status;
}

dlc_status request_test(dlc_endpoint *e, dlc_request *r, int *done) {
    if (!r->done) {
        (void)move_on(e);
        dlc_status status = trouble(e);
        if (status != DLC_OK)
            return status;
    }
    *done = r->done;
    return r->done ? finish(e, r) : DLC_OK;
}

dlc_status request_wait(dlc_endpoint *e, dlc_request *r) {
    dlc_status status = wait_for(e, &r->done);
    return status == DLC_OK ? finish(e, r) : status;
}
