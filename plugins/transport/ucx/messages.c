/* Requests, and the send and receive calls of the transport. */
#include <inttypes.h>
#include <string.h>

#include "ucx.h"

/* Longest message sent without a request; see ELEMENT in endpoint.c. */
enum { SHORT = 8 << 10 };

dlc_request *find_number(const queue *q, uint32_t number) {
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

dlc_status request_more(dlc_endpoint *e) {
    dlc_request *r = host->alloc(sizeof *r);
    if (!r)
        return DLC_ERR_NOMEM;
    r->endpoint = e;
    r->made = e->made;
    e->made = r;
    request_free(e, r);
    return DLC_OK;
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
    if (e->host_memory || e->staged) /* else UCX detects the memory type */
        how.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    return how;
}

ucp_request_param_t how_to_send_to(const dlc_endpoint *e, int32_t to,
                                   ucp_send_nbx_callback_t done, void *context) {
    ucp_request_param_t how = how_to_send(e, done, context);
    if (!e->staged && e->peers[to].tcp_only) {
        how.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        how.flags = UCP_AM_SEND_FLAG_EAGER;
    }
    return how;
}

ucs_status_t send_control(const dlc_endpoint *e, int32_t to, unsigned id,
                          const void *words, size_t bytes) {
    ucp_request_param_t how = {0};
    ucs_status_ptr_t request = ucx.am_send_nbx(e->peers[to].ep, id, words, bytes, NULL,
                                               0, &how);
    if (UCS_PTR_IS_PTR(request))
        ucx.request_free(request); /* freed by UCX when it is done */
    return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK;
}

/* ---- Sending ---------------------------------------------------------------- */

static void send_done(void *request, ucs_status_t status, void *context) {
    dlc_request *r = context;
    if (status != UCS_OK) {
        r->status = DLC_ERR_PEER;
        r->broken = status;
    }
    r->done = 1;
    r->endpoint->unsent--;
    ucx.request_free(request);
}

/* Short messages mostly complete at once. Without a request of their own they go at
 * more than twice the rate. */
static int send_short(ucp_ep_h ep, const void *head, size_t head_bytes,
                      const void *bytes, size_t count) {
    static const ucp_request_param_t immediate = {
        .op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};
    return ucx.am_send_nbx(ep, MESSAGE_ID, head, head_bytes, bytes, count,
                           &immediate) == NULL;
}

/* Packs the shortest messages and their header into one buffer: UCX writes two buffers
 * to the peer separately, which takes up to 100 ns more. */
static int send_packed(dlc_endpoint *e, const peer *p, dlc_tag tag, const void *buffer,
                       size_t bytes) {
    e->packed.tag = tag;
    e->packed.number = p->sent;
    if (bytes > 0)
        memcpy(e->packed.bytes, buffer, bytes);
    return send_short(p->ep, NULL, 0, &e->packed, WHOLE_HEADER + bytes);
}

static dlc_status send_whole(dlc_endpoint *e, dlc_request *r) {
    ucp_request_param_t how = how_to_send_to(e, r->peer, send_done, r);
    ucs_status_ptr_t request = ucx.am_send_nbx(e->peers[r->peer].ep, MESSAGE_ID,
                                               &r->header, WHOLE_HEADER, r->source,
                                               r->bytes, &how);
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
    return e->staged || (e->peers[to].tcp_only && bytes > STREAM_CHUNK);
}

/* Not inlined, so that the shortest messages don't pay for its prologue. */
static __attribute__((noinline)) dlc_status
send_unpacked(dlc_endpoint *e, int32_t to, dlc_tag tag, const void *buffer,
              size_t bytes, dlc_request **request) {
    peer *p = &e->peers[to];
    header head = {.tag = tag, .bytes = bytes, .number = p->sent, .from = e->rank};

    if (e->fast_path && bytes > PACKED && bytes <= SHORT &&
        send_short(p->ep, &head, WHOLE_HEADER, buffer, bytes)) {
        p->sent++;
        *request = &e->completed;
        return DLC_OK;
    }
    dlc_request *r = request_new(e, to, bytes);
    if (!r)
        return DLC_ERR_NOMEM;
    r->kind = SEND;
    r->source = buffer;
    r->header = head;
    p->sent++;
    dlc_status status = in_chunks(e, to, bytes) ? send_in_chunks(e, r)
                                                : send_whole(e, r);
    if (status != DLC_OK)
        return status; /* the endpoint keeps the request */
    *request = r;
    return DLC_OK;
}

dlc_status message_send(dlc_endpoint *e, int32_t to, dlc_tag tag, const void *buffer,
                        size_t bytes, dlc_request **request) {
    if (!is_rank(e, to))
        return endpoint_no_rank(e, to);
    peer *p = &e->peers[to];
    if (bytes > PACKED || !e->fast_path || !send_packed(e, p, tag, buffer, bytes))
        return send_unpacked(e, to, tag, buffer, bytes, request);
    p->sent++;
    *request = &e->completed;
    return DLC_OK;
}

/* ---- Receiving -------------------------------------------------------------- */

dlc_status message_recv(dlc_endpoint *e, int32_t from, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request) {
    if (!is_rank(e, from))
        return endpoint_no_rank(e, from);
    dlc_request *r = request_new(e, from, bytes);
    if (!r)
        return DLC_ERR_NOMEM;
    r->kind = RECEIVE;
    r->target = buffer;
    r->header.tag = tag;
    dlc_status status = DLC_OK;
    if (e->peers[from].unexpected.first)
        status = receive_post(e, r);
    else
        queue_add(&e->peers[from].receives, r);
    if (status != DLC_OK)
        return status;
    *request = r;
    return DLC_OK;
}

/* ---- Completion ------------------------------------------------------------- */

static dlc_status fail(dlc_endpoint *e, dlc_request *r) {
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

static dlc_status finish(dlc_endpoint *e, dlc_request *r) {
    if (r->status != DLC_OK)
        return fail(e, r);
    if (r != &e->completed)
        request_free(e, r);
    return DLC_OK;
}

dlc_status request_test(dlc_endpoint *e, dlc_request *r, int *done) {
    if (!r->done) {
        (void)progress(e);
        dlc_status status = check_error(e);
        if (status != DLC_OK)
            return status;
    }
    *done = r->done;
    dlc_status status = r->done ? finish(e, r) : DLC_OK;
    return status == DLC_OK && is_owing(e) ? receive_settle(e, 0) : status;
}

dlc_status request_wait(dlc_endpoint *e, dlc_request *r) {
    dlc_status status = DLC_OK;
    if (r == &e->completed)
        return DLC_OK;
    if (!r->done)
        status = wait_for(e, &r->done, r->kind == RECEIVE && r->next);
    if (status == DLC_OK)
        status = finish(e, r);
    return status == DLC_OK && is_owing(e) ? receive_settle(e, 1) : status;
}
