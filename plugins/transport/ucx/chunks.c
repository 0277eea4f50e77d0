/* Messages of devices whose memory UCX cannot read: in chunks, through host memory.
 *
 * A send fills one chunk while the one before is under way, so that the copy from the
 * device and the network work at the same time; likewise on the other side. Two chunks
 * a peer are enough for that. They always come free again, because the receiver
 * fetches every chunk at once, wanted or not: so no order of sends and receives can
 * stand still for want of one.
 */
#include "ucx.h"

enum { UNDER_WAY = 2 };

chunk *chunk_take(dlc_endpoint *e) {
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
    if (args->device_ops->alloc(args->device, e->chunk_bytes, DLC_MEM_STAGING,
                                &c->memory) != DLC_OK) {
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
        e->args->device_ops->free(e->args->device, &c->memory);
        host->free(c);
    }
}

/* ---- Out -------------------------------------------------------------------- */

/* Done when its last chunk has left. */
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
    e->peers[c->peer].chunks--;
    c->request->chunks--;
    finish(e, c->request);
    chunk_give(e, c);
    ucx.request_free(request);
}

static dlc_status send_chunk(dlc_endpoint *e, dlc_request *r) {
    const dlc_transport_args *args = e->args;
    size_t left = r->bytes - r->moved;
    size_t bytes = left < e->chunk_bytes ? left : e->chunk_bytes;
    ucp_ep_h ep;

    dlc_status status = endpoint_reach(e, r->peer, &ep);
    if (status != DLC_OK)
        return status;
    chunk *c = chunk_take(e);
    if (!c)
        return DLC_ERR_NOMEM;
    if (bytes > 0)
        status = args->device_ops->copy(args->device, NULL, c->memory.base,
                                        r->source + r->moved, bytes);
    if (status != DLC_OK) {
        chunk_give(e, c);
        return status;
    }
    c->peer = r->peer;
    c->request = r;
    c->header = r->header;
    c->header.offset = r->moved;
    r->moved += bytes;

    ucp_request_param_t how = how_to_send(e, chunk_sent, c);
    ucs_status_ptr_t request = ucx.am_send_nbx(
        ep, MESSAGE_ID, &c->header, sizeof c->header, c->memory.base, bytes, &how);
    if (UCS_PTR_IS_PTR(request)) {
        e->peers[c->peer].chunks++;
        r->chunks++;
        return DLC_OK;
    }
    chunk_give(e, c);
    return UCS_PTR_IS_ERR(request) ? endpoint_lost(e, r->peer, UCS_PTR_STATUS(request))
                                   : DLC_OK;
}

dlc_status chunks_push(dlc_endpoint *e, int32_t to, int *moved) {
    peer *p = &e->peers[to];

    while (p->staged.first && p->chunks < UNDER_WAY) {
        dlc_request *r = p->staged.first;
        dlc_status status = send_chunk(e, r);
        if (status != DLC_OK)
            return status;
        *moved = 1;
        if (r->moved < r->bytes)
            continue;
        queue_remove(&p->staged, r);
        e->queued--;
        finish(e, r);
    }
    return DLC_OK;
}

/* ---- In --------------------------------------------------------------------- */

static void landed(void *request, ucs_status_t status, size_t bytes, void *context) {
    piece *p = context;
    dlc_endpoint *e = p->endpoint;

    (void)bytes;
    e->fetches--;
    if (status == UCS_OK) {
        arrival_landed(p);
    } else if (e->broken == UCS_OK) {
        e->broken = status;
        e->broken_peer = p->header.from;
    }
    ucx.request_free(request);
}

dlc_status chunks_fetch(dlc_endpoint *e, piece *p) {
    chunk *c = chunk_take(e);
    if (!c)
        return DLC_ERR_NOMEM;
    ucp_request_param_t how = how_to_send(e, NULL, p);
    how.cb.recv_am = landed;
    ucs_status_ptr_t request = ucx.am_recv_data_nbx(e->worker, p->data, c->memory.base,
                                                    p->bytes, &how);

    p->chunk = c;
    p->data = c->memory.base;
    p->state = request ? COMING : HERE;
    e->fetches += UCS_PTR_IS_PTR(request);
    return UCS_PTR_IS_ERR(request)
               ? endpoint_lost(e, p->header.from, UCS_PTR_STATUS(request))
               : DLC_OK;
}
