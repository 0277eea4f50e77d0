/* Messages in chunks.
 *
 * Messages of devices whose memory UCX cannot read go through host memory. A send fills
 * one chunk while the previous one is in flight, so that the copy from the device and
 * the network overlap; the receiver does likewise. Two chunks per peer are enough for
 * that. They always become free again, because the receiver fetches every chunk at
 * once, posted or not: so no order of sends and receives can deadlock for lack of
 * chunks.
 *
 * Messages over TCP are sent in chunks without a copy. In UCX's rendezvous protocol
 * over TCP each control message (RTS, CTS, completion) waits behind all the bytes of
 * other messages in flight to the same peer: two ranks that send each other large
 * messages do so one after the other, and a rank that sends several at a time sees them
 * all complete at once, with the link idle in between. rendezvous.c decides how much of
 * a message may be sent.
 */
#include "ucx.h"

enum { CHUNKS_IN_FLIGHT = 2 };

/* NULL when out of memory. */
static chunk *chunk_take(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    chunk *c = e->free_chunks;

    if (c) {
        e->free_chunks = c->next;
        return c;
    }
    c = host->alloc(sizeof *c);
    if (!c)
        return NULL;
    c->memory.size = sizeof c->memory;
    if (e->staged && args->device_ops->alloc(args->device, e->chunk_bytes,
                                             DLC_MEM_STAGING, &c->memory) != DLC_OK) {
        host->free(c);
        return NULL;
    }
    c->endpoint = e;
    c->made = e->chunks;
    e->chunks = c;
    return c;
}

void chunk_give(dlc_endpoint *e, chunk *c) {
    c->next = e->free_chunks;
    e->free_chunks = c;
}

void chunks_close(dlc_endpoint *e) {
    while (e->chunks) {
        chunk *c = e->chunks;
        e->chunks = c->made;
        if (c->memory.base)
            e->args->device_ops->free(e->args->device, &c->memory);
        host->free(c);
    }
}

/* ---- Sending ---------------------------------------------------------------- */

/* A send is done when its last chunk has left. */
static void finish(dlc_endpoint *e, dlc_request *r) {
    if (r->moved < r->bytes || r->chunks > 0)
        return;
    r->done = 1;
    e->unsent--;
}

static void chunk_sent(void *request, ucs_status_t status, void *context) {
    chunk *c = context;
    dlc_endpoint *e = c->endpoint;

    if (status != UCS_OK && e->broken == UCS_OK) {
        e->broken = status;
        e->broken_peer = c->peer;
    }
    c->rail->peers[c->peer].chunks--;
    c->request->chunks--;
    finish(e, c->request);
    chunk_give(e, c);
    ucx.request_free(request);
}

/* Copies to the staging chunk where needed; *from is where the next bytes are sent
 * from. */
static dlc_status stage(dlc_endpoint *e, const dlc_request *r, chunk *c, size_t bytes,
                        const void **from) {
    const dlc_transport_args *args = e->args;

    *from = e->staged ? c->memory.base : r->source + r->moved;
    if (!e->staged || bytes == 0)
        return DLC_OK;
    return args->device_ops->copy(args->device, NULL, c->memory.base,
                                  r->source + r->moved, bytes);
}

static dlc_status send_chunk(dlc_endpoint *e, dlc_request *r) {
    size_t left = rendezvous_limit(e, r) - r->moved,
           most = e->staged ? e->chunk_bytes : STREAM_CHUNK;
    size_t bytes = left < most ? left : most;
    const void *from;

    chunk *c = chunk_take(e);
    if (!c)
        return DLC_ERR_NOMEM;
    dlc_status status = stage(e, r, c, bytes, &from);
    if (status != DLC_OK) {
        chunk_give(e, c);
        return status;
    }
    c->peer = r->peer;
    c->rail = e->peers[r->peer].rail = rails_idle(e, r->peer);
    c->request = r;
    c->header = r->header;
    c->header.offset = r->moved;
    r->moved += bytes;

    ucp_request_param_t how = how_to_send_to(e, r->peer, chunk_sent, c);
    ucs_status_ptr_t request = ucx.am_send_nbx(c->rail->peers[r->peer].ep, MESSAGE_ID,
                                               &c->header, sizeof c->header, from,
                                               bytes, &how);
    if (UCS_PTR_IS_PTR(request)) {
        c->rail->peers[c->peer].chunks++;
        r->chunks++;
        return DLC_OK;
    }
    chunk_give(e, c);
    return UCS_PTR_IS_ERR(request) ? endpoint_lost(e, r->peer, UCS_PTR_STATUS(request))
                                   : DLC_OK;
}

void chunks_queue(dlc_endpoint *e, dlc_request *r) {
    queue_add(&e->peers[r->peer].staged, r);
    e->queued++;
}

dlc_status chunks_push(dlc_endpoint *e, int32_t to, int *moved) {
    peer *p = &e->peers[to];

    while (p->staged.first && rails_idle(e, to)->peers[to].chunks < CHUNKS_IN_FLIGHT) {
        dlc_request *r = p->staged.first;
        dlc_status status = send_chunk(e, r);
        if (status != DLC_OK)
            return status;
        *moved = 1;
        if (r->moved < rendezvous_limit(e, r))
            continue;
        queue_remove(&p->staged, r);
        e->queued--;
        if (r->moved < r->bytes)
            queue_add(&p->offered, r);
        finish(e, r);
    }
    return DLC_OK;
}

int chunks_progress(dlc_endpoint *e) {
    int moved = 0;
    for (int32_t r = 0; r < e->ranks && e->queued > 0 && e->failed == DLC_OK; r++)
        e->failed = chunks_push(e, r, &moved);
    return moved;
}

/* ---- Receiving -------------------------------------------------------------- */

static void fetch_done(void *request, ucs_status_t status, size_t bytes,
                       void *context) {
    fragment *p = context;
    dlc_endpoint *e = p->endpoint;

    (void)bytes;
    e->fetches--;
    receive_owe(e, p->header.from);
    if (status == UCS_OK) {
        receive_fetched(p);
    } else if (e->broken == UCS_OK) {
        e->broken = status;
        e->broken_peer = p->header.from;
    }
    ucx.request_free(request);
}

dlc_status chunks_fetch(dlc_endpoint *e, fragment *p) {
    chunk *c = chunk_take(e);
    if (!c)
        return DLC_ERR_NOMEM;
    ucp_request_param_t how = how_to_send(e, NULL, p);
    how.cb.recv_am = fetch_done;
    ucs_status_ptr_t request = ucx.am_recv_data_nbx(e->worker, p->data, c->memory.base,
                                                    p->bytes, &how);

    p->chunk = c;
    p->data = c->memory.base;
    p->state = request ? FETCHING : RECEIVED;
    e->fetches += UCS_PTR_IS_PTR(request);
    if (!request)
        receive_owe(e, p->header.from);
    return UCS_PTR_IS_ERR(request)
               ? endpoint_lost(e, p->header.from, UCS_PTR_STATUS(request))
               : DLC_OK;
}
