/* What comes in: which request a message belongs to, and how its bytes get there.
 *
 * UCX may bring two messages of one peer in another order than they were sent in (a
 * small one overtakes a large one that is only announced). So messages are numbered,
 * and matched in that order: the next one looks for the first receive of its tag, or
 * becomes an unexpected message that a later receive claims. What comes too early is
 * kept until its turn.
 *
 * Bytes that belong to a receive are copied out of UCX's buffer, or fetched by UCX
 * straight to their place. Bytes that nobody wants yet are kept: the small ones in
 * memory of their own, the large ones where they are, in the sender's memory; in chunks
 * only (chunks.c) they are brought here, so that the sender's few chunks come free.
 */
#include <inttypes.h>
#include <string.h>

#include "ucx.h"

static piece *piece_new(dlc_endpoint *e, const header *head, size_t bytes) {
    piece *p = e->free_pieces, *made = p ? p->made : e->pieces;
    if (p)
        e->free_pieces = p->next;
    else
        e->pieces = p = host->alloc(sizeof *p);
    if (p)
        *p = (piece){.made = made, .endpoint = e, .header = *head, .bytes = bytes};
    else
        e->pieces = made;
    return p;
}

static void piece_free(dlc_endpoint *e, piece *p) {
    if (p->chunk)
        chunk_give(e, p->chunk);
    else if (p->state == HERE)
        host->free(p->data);
    *p = (piece){.made = p->made, .next = e->free_pieces, .state = UNUSED};
    e->free_pieces = p;
}

void arrivals_decline(dlc_endpoint *e) {
    for (piece *p = e->pieces; p; p = p->made)
        if (p->state == OFFERED) {
            ucx.am_data_release(e->worker, p->data);
            piece_free(e, p);
        }
}

void arrivals_close(dlc_endpoint *e) {
    while (e->pieces) {
        piece *p = e->pieces;
        e->pieces = p->made;
        if (p->state == HERE && !p->chunk)
            host->free(p->data);
        host->free(p);
    }
}

/* ---- Bytes for a receive ----------------------------------------------------- */

static void count_bytes(dlc_request *r, size_t bytes) {
    r->moved += bytes;
    if (r->moved < r->header.bytes)
        return;
    if (r->listed)
        queue_remove(&r->endpoint->peers[r->peer].begun, r);
    r->done = 1;
}

/* They are here: copies them, unless the sizes don't agree. */
static void give(dlc_request *r, const header *head, const void *data, size_t bytes) {
    dlc_endpoint *e = r->endpoint;
    const dlc_transport_args *args = e->args;

    if (bytes < head->bytes)
        offer_accept(e, r, head);
    if (r->status == DLC_OK && bytes > 0) {
        if (e->near)
            memcpy(r->target + head->offset, data, bytes);
        else
            e->failed = args->device_ops->copy(args->device, NULL,
                                               r->target + head->offset, data, bytes);
    }
    count_bytes(r, bytes);
}

static void fetched(void *request, ucs_status_t status, size_t bytes, void *context) {
    dlc_request *r = context;
    r->endpoint->fetches--;
    if (status == UCS_OK) {
        count_bytes(r, bytes);
    } else {
        r->status = DLC_ERR_PEER;
        r->broken = status;
        r->done = 1;
    }
    ucx.request_free(request);
}

/* UCX has been offered them: it fetches them. */
static void fetch(dlc_request *r, const header *head, void *offer, size_t bytes) {
    dlc_endpoint *e = r->endpoint;
    ucp_request_param_t how = how_to_send(e, NULL, r);
    how.cb.recv_am = fetched;
    ucs_status_ptr_t request = ucx.am_recv_data_nbx(
        e->worker, offer, r->target + head->offset, bytes, &how);

    if (UCS_PTR_IS_ERR(request)) {
        r->status = DLC_ERR_PEER;
        r->broken = UCS_PTR_STATUS(request);
        r->done = 1;
    } else if (request) {
        e->fetches++;
    } else {
        count_bytes(r, bytes);
    }
}

/* ---- Whose message is it? ---------------------------------------------------- */

static dlc_request *of_tag(const queue *q, dlc_tag tag) {
    dlc_request *r = q->first;
    while (r && r->header.tag != tag)
        r = r->next;
    return r;
}

/* A receive and its message have found each other; `come` bytes of it are here. */
static void join(peer *p, dlc_request *r, const header *head, size_t come) {
    if (r->bytes != head->bytes) {
        r->status = DLC_ERR_CONFIG; /* told by wait or test; its bytes are dropped */
        r->sent = head->bytes;
    }
    r->header.bytes = head->bytes;
    if (come < head->bytes) {
        r->header.number = head->number;
        r->listed = 1;
        queue_add(&p->begun, r);
    }
}

/* It is the next message's turn. */
static dlc_request *match(dlc_endpoint *e, peer *p, const header *head, size_t come) {
    dlc_request *r = of_tag(&p->receives, head->tag);

    if (r) {
        queue_remove(&p->receives, r);
        join(p, r, head, come);
    } else {
        r = request_new(e, head->from, (size_t)head->bytes);
        if (!r) {
            e->failed = DLC_ERR_NOMEM;
            return NULL;
        }
        r->kind = UNEXPECTED;
        r->header = *head;
        queue_add(&p->unexpected, r);
    }
    p->matched++;
    return r;
}

/* NULL: its turn has not come. */
static dlc_request *request_of(dlc_endpoint *e, peer *p, const header *head,
                               size_t come) {
    int32_t ahead = (int32_t)(head->number - p->matched);

    if (ahead == 0 && head->offset == 0)
        return match(e, p, head, come);
    if (ahead >= 0)
        return NULL;
    dlc_request *r = of_number(&p->begun, head->number);
    return r ? r : of_number(&p->unexpected, head->number);
}

/* ---- Pieces that are kept ---------------------------------------------------- */

/* A receive gets what was kept. */
static void hand(dlc_request *r, piece *p) {
    dlc_endpoint *e = r->endpoint;

    if (p->state == COMING) {
        p->taker = r;
        return;
    }
    if (p->state == HERE) {
        give(r, &p->header, p->data, p->bytes);
    } else if (r->status == DLC_OK) {
        fetch(r, &p->header, p->data, p->bytes);
    } else {
        ucx.am_data_release(e->worker, p->data);
        count_bytes(r, p->bytes);
    }
    p->state = p->state == OFFERED ? UNUSED : p->state;
    piece_free(e, p);
}

void arrival_landed(piece *p) {
    p->state = HERE;
    if (p->taker)
        hand(p->taker, p);
}

static void place(dlc_request *r, piece *p) {
    if (r->kind == RECEIVE) {
        hand(r, p);
        return;
    }
    p->next = r->pieces;
    r->pieces = p;
    r->moved += p->bytes;
}

/* Those that came too early, and whose turn is now. */
static void settle(dlc_endpoint *e, peer *p) {
    piece **at = &p->early;
    while (*at) {
        piece *kept = *at;
        dlc_request *r = request_of(e, p, &kept->header, kept->bytes);
        if (!r) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        place(r, kept);
        at = &p->early; /* it may have been another's turn before */
    }
}

static ucs_status_t keep(dlc_endpoint *e, dlc_request *r, const header *head,
                         void *data, size_t bytes, int offered) {
    piece *p = piece_new(e, head, bytes);
    dlc_status status = p ? DLC_OK : DLC_ERR_NOMEM;

    if (status == DLC_OK && !offered) {
        p->state = HERE;
        p->data = host->alloc(bytes);
        if (!p->data)
            status = DLC_ERR_NOMEM;
        else if (bytes > 0)
            memcpy(p->data, data, bytes);
    } else if (status == DLC_OK) {
        p->state = OFFERED;
        p->data = data;
        status = e->staged ? chunks_fetch(e, p) : DLC_OK;
    }
    if (status != DLC_OK) {
        e->failed = status;
        return UCS_OK; /* UCX forgets about it; we have failed for good */
    }
    if (r) {
        place(r, p);
    } else {
        p->next = e->peers[head->from].early;
        e->peers[head->from].early = p;
    }
    return offered ? UCS_INPROGRESS : UCS_OK;
}

/* ---- UCX brings something ---------------------------------------------------- */

static int read_header(const dlc_endpoint *e, const void *raw, size_t raw_bytes,
                       size_t bytes, header *head) {
    if (raw_bytes == WHOLE_HEADER) {
        memcpy(head, raw, WHOLE_HEADER);
        head->bytes = bytes;
        head->offset = 0;
    } else if (raw_bytes == sizeof *head) {
        memcpy(head, raw, sizeof *head);
        if (head->offset > head->bytes || bytes > head->bytes - head->offset)
            return 0;
    } else {
        return 0;
    }
    return is_rank(e, head->from) && (!e->staged || bytes <= e->chunk_bytes);
}

static __attribute__((noinline)) ucs_status_t arrives(dlc_endpoint *e, const void *raw,
                                                      size_t raw_bytes, void *data,
                                                      size_t bytes, int offered) {
    ucs_status_t answer = UCS_OK;
    header head;

    if (e->closing)
        return UCS_OK;
    if (!read_header(e, raw, raw_bytes, bytes, &head)) {
        e->failed = host->fail(DLC_ERR_INTERNAL,
                               "broken message of %zu bytes with a header of %zu: do "
                               "all ranks run the same program?",
                               bytes, raw_bytes);
        return UCS_OK;
    }

    peer *p = &e->peers[head.from];
    dlc_request *r = request_of(e, p, &head, bytes);
    if (r && r->kind == RECEIVE && !offered) {
        give(r, &head, data, bytes);
    } else if (r && r->kind == RECEIVE && r->status != DLC_OK) {
        count_bytes(r, bytes); /* UCX tells the sender that it is done */
    } else if (r && r->kind == RECEIVE && !e->staged) {
        fetch(r, &head, data, bytes);
        answer = UCS_INPROGRESS;
    } else {
        answer = keep(e, r, &head, data, bytes, offered);
    }
    if (p->early)
        settle(e, p);
    return answer;
}

/* What mostly comes: all of the message whose turn it is, for the first receive, in
 * memory that we can write. The same as above, in a third of the instructions. */
static int arrives_at_once(dlc_endpoint *e, const void *raw, const void *data,
                           size_t bytes) {
    header head;

    memcpy(&head, raw, WHOLE_HEADER);
    if (!e->at_once || !is_rank(e, head.from))
        return 0;
    peer *p = &e->peers[head.from];
    dlc_request *r = p->receives.first;
    if (head.number != p->matched || p->early || !r || r->header.tag != head.tag ||
        r->bytes != bytes)
        return 0;
    p->matched++;
    p->receives.first = r->next;
    if (!r->next)
        p->receives.last = NULL;
    if (bytes > 0)
        memcpy(r->target, data, bytes);
    r->done = 1;
    return 1;
}

ucs_status_t arrival(void *endpoint, const void *raw, size_t raw_bytes, void *data,
                     size_t bytes, const ucp_am_recv_param_t *param) {
    int offered = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;

    if (raw_bytes == 0 && bytes >= WHOLE_HEADER) { /* it comes before the bytes */
        raw = data;
        raw_bytes = WHOLE_HEADER;
        data = (unsigned char *)data + WHOLE_HEADER;
        bytes -= WHOLE_HEADER;
    }
    if (raw_bytes == WHOLE_HEADER && !offered &&
        arrives_at_once(endpoint, raw, data, bytes))
        return UCS_OK;
    return arrives(endpoint, raw, raw_bytes, data, bytes, offered);
}

dlc_status arrivals_claim(dlc_endpoint *e, dlc_request *r) {
    peer *p = &e->peers[r->peer];
    dlc_request *early = of_tag(&p->unexpected, r->header.tag);

    if (!early) {
        queue_add(&p->receives, r);
        return DLC_OK;
    }
    queue_remove(&p->unexpected, early);
    join(p, r, &early->header, early->moved);
    for (piece *kept = early->pieces, *next; kept; kept = next) {
        next = kept->next;
        hand(r, kept);
    }
    request_free(e, early);
    return e->failed;
}
