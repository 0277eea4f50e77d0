/* Incoming messages: matches them to requests and moves their bytes there.
 *
 * UCX may deliver two messages of one peer in another order than they were sent in (a
 * small one overtakes a large one that is only announced). So messages are numbered,
 * and matched in that order: the next one looks for the first receive of its tag, or
 * becomes an unexpected message that a later receive claims. Messages that arrive too
 * early are kept.
 *
 * Bytes of a posted receive are copied out of UCX's buffer, or fetched by UCX straight
 * to their place. Other bytes are kept: eager ones in memory of their own, rendezvous
 * ones in the sender's memory; those in chunks (chunks.c) are fetched at once, so that
 * the sender's few chunks become free.
 */
#include <inttypes.h>
#include <string.h>

#include "ucx.h"

static fragment *fragment_new(dlc_endpoint *e, const header *head, size_t bytes) {
    fragment *p = e->free_fragments, *made = p ? p->made : e->fragments;
    if (p)
        e->free_fragments = p->next;
    else
        e->fragments = p = host->alloc(sizeof *p);
    if (p)
        *p = (fragment){.made = made, .endpoint = e, .header = *head, .bytes = bytes};
    else
        e->fragments = made;
    return p;
}

static void fragment_free(dlc_endpoint *e, fragment *p) {
    if (p->chunk)
        chunk_give(e, p->chunk);
    else if (p->state == RECEIVED)
        host->free(p->data);
    *p = (fragment){.made = p->made, .next = e->free_fragments, .state = UNUSED};
    e->free_fragments = p;
}

void receive_release(dlc_endpoint *e) {
    for (fragment *p = e->fragments; p; p = p->made)
        if (p->state == RENDEZVOUS) {
            ucx.am_data_release(e->worker, p->data);
            fragment_free(e, p);
        }
}

void receive_close(dlc_endpoint *e) {
    while (e->fragments) {
        fragment *p = e->fragments;
        e->fragments = p->made;
        if (p->state == RECEIVED && !p->chunk)
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

/* Copies bytes that are here to the receive buffer, unless the sizes differ. */
static void copy_to_receive(dlc_request *r, const header *head, const void *data,
                            size_t bytes) {
    dlc_endpoint *e = r->endpoint;
    const dlc_transport_args *args = e->args;

    if (bytes < head->bytes)
        rendezvous_send_cts(e, r, head);
    if (r->status == DLC_OK && bytes > 0) {
        if (e->host_memory)
            memcpy(r->target + head->offset, data, bytes);
        else
            e->failed = args->device_ops->copy(args->device, NULL,
                                               r->target + head->offset, data, bytes);
    }
    count_bytes(r, bytes);
}

void receive_owe(dlc_endpoint *e, int32_t from) {
    peer *p = &e->peers[from];
    if (p->has_tcp) /* a flush would wait for the peer to do something */
        return;
    e->owing += !p->owes;
    p->owes = 1;
}

dlc_status receive_settle(dlc_endpoint *e, int blocks) {
    for (int32_t r = 0; r < e->ranks && e->owing > 0; r++) {
        if (!e->peers[r].owes)
            continue;
        e->peers[r].owes = 0;
        e->owing--;
        connect_flush(e, r);
    }
    e->flushed = e->flushing == 0;
    return blocks && !e->flushed ? wait_for(e, &e->flushed, 0) : DLC_OK;
}

static void fetch_done(void *request, ucs_status_t status, size_t bytes,
                       void *context) {
    dlc_request *r = context;
    r->endpoint->fetches--;
    receive_owe(r->endpoint, r->peer);
    if (status == UCS_OK) {
        count_bytes(r, bytes);
    } else {
        r->status = DLC_ERR_PEER;
        r->broken = status;
        r->done = 1;
    }
    ucx.request_free(request);
}

/* Lets UCX fetch rendezvous bytes to the receive buffer. */
static void fetch(dlc_request *r, const header *head, void *offer, size_t bytes) {
    dlc_endpoint *e = r->endpoint;
    ucp_request_param_t how = how_to_send(e, NULL, r);
    how.cb.recv_am = fetch_done;
    ucs_status_ptr_t request = ucx.am_recv_data_nbx(
        e->worker, offer, r->target + head->offset, bytes, &how);

    if (UCS_PTR_IS_ERR(request)) {
        r->status = DLC_ERR_PEER;
        r->broken = UCS_PTR_STATUS(request);
        r->done = 1;
    } else if (request) {
        e->fetches++;
    } else {
        receive_owe(e, r->peer);
        count_bytes(r, bytes);
    }
}

/* ---- Matching ---------------------------------------------------------------- */

static dlc_request *find_tag(const queue *q, dlc_tag tag) {
    dlc_request *r = q->first;
    while (r && r->header.tag != tag)
        r = r->next;
    return r;
}

/* Binds a receive to its message, `come` bytes of which are here. */
static void bind_message(peer *p, dlc_request *r, const header *head, size_t come) {
    if (r->bytes != head->bytes) {
        r->status =
            DLC_ERR_CONFIG; /* returned by wait or test; the bytes are dropped */
        r->sent = head->bytes;
    }
    r->header.bytes = head->bytes;
    if (come < head->bytes) {
        r->header.number = head->number;
        r->listed = 1;
        queue_add(&p->begun, r);
    }
}

/* Matches the next message in sequence. */
static dlc_request *match(dlc_endpoint *e, peer *p, const header *head, size_t come) {
    dlc_request *r = find_tag(&p->receives, head->tag);

    if (r) {
        queue_remove(&p->receives, r);
        bind_message(p, r, head, come);
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

/* The request of a fragment; NULL: earlier messages are missing. */
static dlc_request *request_of(dlc_endpoint *e, peer *p, const header *head,
                               size_t come) {
    int32_t ahead = (int32_t)(head->number - p->matched);

    if (ahead == 0 && head->offset == 0)
        return match(e, p, head, come);
    if (ahead >= 0)
        return NULL;
    dlc_request *r = find_number(&p->begun, head->number);
    return r ? r : find_number(&p->unexpected, head->number);
}

/* ---- Fragments that are kept ------------------------------------------------- */

/* Delivers a kept fragment to its receive. */
static void deliver(dlc_request *r, fragment *p) {
    dlc_endpoint *e = r->endpoint;

    if (p->state == FETCHING) {
        p->receive = r;
        return;
    }
    if (p->state == RECEIVED) {
        copy_to_receive(r, &p->header, p->data, p->bytes);
    } else if (r->status == DLC_OK) {
        fetch(r, &p->header, p->data, p->bytes);
    } else {
        ucx.am_data_release(e->worker, p->data);
        count_bytes(r, p->bytes);
    }
    p->state = p->state == RENDEZVOUS ? UNUSED : p->state;
    fragment_free(e, p);
}

void receive_fetched(fragment *p) {
    p->state = RECEIVED;
    if (p->receive)
        deliver(p->receive, p);
}

static void add_fragment(dlc_request *r, fragment *p) {
    if (r->kind == RECEIVE) {
        deliver(r, p);
        return;
    }
    p->next = r->fragments;
    r->fragments = p;
    r->moved += p->bytes;
}

/* Matches the fragments that arrived too early and are next now. */
static void match_early(dlc_endpoint *e, peer *p) {
    fragment **at = &p->early;
    while (*at) {
        fragment *kept = *at;
        dlc_request *r = request_of(e, p, &kept->header, kept->bytes);
        if (!r) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        add_fragment(r, kept);
        at = &p->early; /* may have unblocked another one */
    }
}

static ucs_status_t store_fragment(dlc_endpoint *e, dlc_request *r, const header *head,
                                   void *data, size_t bytes, int offered) {
    fragment *p = fragment_new(e, head, bytes);
    dlc_status status = p ? DLC_OK : DLC_ERR_NOMEM;

    if (status == DLC_OK && !offered) {
        p->state = RECEIVED;
        p->data = host->alloc(bytes);
        if (!p->data)
            status = DLC_ERR_NOMEM;
        else if (bytes > 0)
            memcpy(p->data, data, bytes);
    } else if (status == DLC_OK) {
        p->state = RENDEZVOUS;
        p->data = data;
        status = e->staged ? chunks_fetch(e, p) : DLC_OK;
    }
    if (status != DLC_OK) {
        e->failed = status;
        return UCS_OK; /* UCX drops the message; the endpoint has failed */
    }
    if (r) {
        add_fragment(r, p);
    } else {
        p->next = e->peers[head->from].early;
        e->peers[head->from].early = p;
    }
    return offered ? UCS_INPROGRESS : UCS_OK;
}

/* ---- The handler ------------------------------------------------------------- */

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

static __attribute__((noinline)) ucs_status_t
receive_message(dlc_endpoint *e, const void *raw, size_t raw_bytes, void *data,
                size_t bytes, int offered) {
    ucs_status_t answer = UCS_OK;
    header head;

    if (e->closing)
        return UCS_OK;
    if (!read_header(e, raw, raw_bytes, bytes, &head)) {
        e->failed = host->fail(DLC_ERR_INTERNAL,
                               "corrupt message of %zu bytes with a header of %zu: do "
                               "all ranks run the same program?",
                               bytes, raw_bytes);
        return UCS_OK;
    }

    peer *p = &e->peers[head.from];
    dlc_request *r = request_of(e, p, &head, bytes);
    if (r && r->kind == RECEIVE && !offered) {
        copy_to_receive(r, &head, data, bytes);
    } else if (r && r->kind == RECEIVE && r->status != DLC_OK) {
        count_bytes(r,
                    bytes); /* the sizes differ: UCX reports completion to the sender */
    } else if (r && r->kind == RECEIVE && !e->staged) {
        fetch(r, &head, data, bytes);
        answer = UCS_INPROGRESS;
    } else {
        answer = store_fragment(e, r, &head, data, bytes, offered);
    }
    if (p->early)
        match_early(e, p);
    return answer;
}

/* Fast path for the common case: a whole message, next in sequence, for the first
 * posted receive, in memory that the CPU writes. Takes a third of the instructions of
 * receive_message. */
static int receive_fast(dlc_endpoint *e, const void *raw, const void *data,
                        size_t bytes) {
    header head;

    memcpy(&head, raw, WHOLE_HEADER);
    if (!e->fast_path || !is_rank(e, head.from))
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

ucs_status_t receive_handler(void *endpoint, const void *raw, size_t raw_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param) {
    int offered = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;

    if (raw_bytes == 0 &&
        bytes >= WHOLE_HEADER) { /* a packed message: the header precedes the bytes */
        raw = data;
        raw_bytes = WHOLE_HEADER;
        data = (unsigned char *)data + WHOLE_HEADER;
        bytes -= WHOLE_HEADER;
    }
    if (raw_bytes == WHOLE_HEADER && !offered &&
        receive_fast(endpoint, raw, data, bytes))
        return UCS_OK;
    return receive_message(endpoint, raw, raw_bytes, data, bytes, offered);
}

dlc_status receive_post(dlc_endpoint *e, dlc_request *r) {
    peer *p = &e->peers[r->peer];
    dlc_request *early = find_tag(&p->unexpected, r->header.tag);

    if (!early) {
        queue_add(&p->receives, r);
        return DLC_OK;
    }
    queue_remove(&p->unexpected, early);
    bind_message(p, r, &early->header, early->moved);
    for (fragment *kept = early->fragments, *next; kept; kept = next) {
        next = kept->next;
        deliver(r, kept);
    }
    request_free(e, early);
    return e->failed;
}
