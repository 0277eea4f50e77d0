/* Messages: cut into pieces that go through the ring of their sender and receiver.
 *
 * The sends to one peer go out in order, piece by piece, as slots become free; a send
 * is done when its last piece is in the ring. The receiver takes pieces out in that
 * order and copies them to the first receive posted for the tag.
 *
 * An unexpected message (no receive is posted for it yet) stays in the ring, which
 * blocks its sender, as long as no receive from that peer is pending; otherwise it
 * could block the expected message, and is moved to memory of its own. So memory grows
 * only when receives are posted in another order than the sends, by the messages
 * overtaken.
 */
#include <inttypes.h>
#include <string.h>

#include "shm.h"

static void queue_add(queue *q, dlc_request *r) {
    r->next = NULL;
    if (q->last)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
}

/* Removes and returns the first request of a tag, or NULL. */
static dlc_request *queue_take(queue *q, dlc_tag tag) {
    dlc_request *before = NULL;
    for (dlc_request *r = q->first; r; before = r, r = r->next) {
        if (r->tag != tag)
            continue;
        if (before)
            before->next = r->next;
        else
            q->first = r->next;
        if (q->last == r)
            q->last = before;
        return r;
    }
    return NULL;
}

static dlc_request *request_new(dlc_endpoint *e, dlc_tag tag, size_t bytes) {
    dlc_request *r = e->free, *made = r ? r->made : e->made;
    if (r)
        e->free = r->next;
    else
        e->made = r = host->alloc(sizeof *r);
    if (r)
        *r = (dlc_request){.made = made, .tag = tag, .bytes = bytes};
    else
        e->made = made;
    return r;
}

static void request_free(dlc_endpoint *e, dlc_request *r) {
    if (r->owned)
        host->free(r->target);
    r->owned = 0;
    r->next = e->free;
    e->free = r;
}

void messages_close(dlc_endpoint *e) {
    while (e->made) {
        dlc_request *r = e->made;
        e->made = r->made;
        if (r->owned)
            host->free(r->target);
        host->free(r);
    }
}

static slot *slot_at(const dlc_endpoint *e, ring *of, uint64_t number) {
    return (slot *)(void *)(of->slots +
                            number % e->slots * (sizeof(slot) + e->slot_bytes));
}

/* ---- Sending --------------------------------------------------------------- */

static dlc_status put_piece(dlc_endpoint *e, peer *p, dlc_request *r) {
    slot *s = slot_at(e, p->out, p->written);
    size_t left = r->bytes - r->moved;

    s->tag = r->tag;
    s->bytes = r->bytes;
    s->piece = left < e->slot_bytes ? left : e->slot_bytes;
    if (s->piece > 0) {
        dlc_status status = copy_in(e, s->data, r->source + r->moved, s->piece);
        if (status != DLC_OK)
            return status;
        r->moved += s->piece;
    }
    p->written++;
    return DLC_OK;
}

/* How many pieces to move at a time: half a ring where a device copies them, since
 * these copies are waited for and both sides should stay busy. */
static size_t batch(const dlc_endpoint *e) {
    return e->host_memory ? e->slots : (e->slots + 1) / 2;
}

/* Publishes how far this rank has written or read a ring. */
static dlc_status publish(dlc_endpoint *e, _Atomic uint64_t *word, uint64_t slots) {
    dlc_status status = copies_done(e);
    if (status == DLC_OK)
        atomic_store(word, slots);
    return status;
}

/* Wakes the peer once for all that was moved and not for every piece: it would often
 * preempt this rank, and sleep again after one piece. */
static dlc_status notify_peer(dlc_endpoint *e, const peer *p, _Atomic uint64_t *word,
                              uint64_t slots) {
    dlc_status status = e->host_memory ? DLC_OK : publish(e, word, slots);
    if (status == DLC_OK && p->rank != e->rank)
        wake_rank(p->head);
    return status;
}

/* Fills free slots. */
static dlc_status push(dlc_endpoint *e, peer *p, int *moved) {
    size_t most = batch(e), i = 0;
    for (; i < most && p->sends.first; i++) {
        dlc_request *r = p->sends.first;
        if (p->written - atomic_load(&p->out->read) >= e->slots)
            break;
        dlc_status status = put_piece(e, p, r);
        if (status == DLC_OK && e->host_memory)
            status = publish(e, &p->out->written, p->written);
        if (status != DLC_OK)
            return status;
        *moved = 1;
        if (r->moved == r->bytes) {
            p->sends.first = r->next;
            if (!r->next)
                p->sends.last = NULL;
            r->done = 1;
            e->sending--;
        }
    }
    return i > 0 ? notify_peer(e, p, &p->out->written, p->written) : DLC_OK;
}

/* ---- Receiving ------------------------------------------------------------- */

/* Finds the request that receives the message beginning with this slot. */
static dlc_status match(dlc_endpoint *e, peer *p, const slot *s, dlc_request **out) {
    dlc_request *r = queue_take(&p->receives, s->tag);
    if (!r) {
        r = request_new(e, s->tag, s->bytes);
        if (!r)
            return DLC_ERR_NOMEM;
        r->target = host->alloc(s->bytes);
        r->owned = 1;
        if (!r->target) {
            request_free(e, r);
            return DLC_ERR_NOMEM;
        }
        queue_add(&p->unexpected, r);
    } else if (r->bytes != s->bytes) {
        r->sent = s->bytes;
        r->status =
            DLC_ERR_CONFIG; /* returned by wait or test; the bytes are dropped */
    }
    *out = r;
    return DLC_OK;
}

static dlc_status take_piece(dlc_endpoint *e, peer *p, slot *s) {
    dlc_request *r = p->current;
    size_t whole = r->status == DLC_OK ? r->bytes : r->sent;
    size_t piece = s->piece;

    if (s->tag != r->tag || piece > e->slot_bytes || piece > whole - r->moved)
        return host->fail(DLC_ERR_INTERNAL,
                          "corrupt message from rank %d (tag %" PRIu64 "): has its "
                          "shared memory been overwritten?",
                          p->rank, s->tag);
    if (piece > 0 && r->status == DLC_OK) {
        dlc_status status = DLC_OK;
        if (r->owned)
            drain(r->target + r->moved, s->data, piece);
        else
            status = copy_out(e, r->target + r->moved, s->data, piece);
        if (status != DLC_OK)
            return status;
    }
    r->moved += piece;
    if (r->moved == whole) {
        r->done = 1;
        p->current = NULL;
        if (!r->owned)
            e->receiving--;
    }
    return DLC_OK;
}

/* Empties full slots. */
static dlc_status pull(dlc_endpoint *e, peer *p, int *moved) {
    size_t most = batch(e), i = 0;
    for (; i < most && (p->current || p->receives.first); i++) {
        if (p->read == atomic_load(&p->in->written))
            break;
        slot *s = slot_at(e, p->in, p->read);
        if (!p->current) {
            dlc_status status = match(e, p, s, &p->current);
            if (status != DLC_OK)
                return status;
        }
        dlc_status status = take_piece(e, p, s);
        p->read++;
        if (status == DLC_OK && e->host_memory)
            status = publish(e, &p->in->read, p->read);
        if (status != DLC_OK)
            return status;
        *moved = 1;
    }
    return i > 0 ? notify_peer(e, p, &p->in->read, p->read) : DLC_OK;
}

dlc_status messages_move(dlc_endpoint *e, int *moved) {
    if (e->sending == 0 && e->receiving == 0)
        return DLC_OK;
    for (int32_t r = 0; r < e->ranks; r++) {
        dlc_status status = push(e, &e->peers[r], moved);
        if (status == DLC_OK)
            status = pull(e, &e->peers[r], moved);
        if (status != DLC_OK)
            return status;
    }
    return DLC_OK;
}

/* ---- Transport operations -------------------------------------------------- */

static peer *find_peer(dlc_endpoint *e, int32_t rank) {
    if (rank >= 0 && rank < e->ranks)
        return &e->peers[rank];
    (void)host->fail(DLC_ERR_CONFIG, "there is no rank %d among %d", rank, e->ranks);
    return NULL;
}

dlc_status messages_send(dlc_endpoint *e, int32_t to, dlc_tag tag, const void *buffer,
                         size_t bytes, dlc_request **request) {
    peer *p = find_peer(e, to);
    if (!p)
        return DLC_ERR_CONFIG;
    dlc_request *r = request_new(e, tag, bytes);
    if (!r)
        return DLC_ERR_NOMEM;
    r->source = buffer;
    queue_add(&p->sends, r);
    e->sending++;
    int moved = 0;
    dlc_status status = push(e, p, &moved);
    if (status != DLC_OK)
        return status; /* the endpoint keeps the request */
    *request = r;
    return DLC_OK;
}

/* Copies an unexpected message from host memory to the receive buffer. */
static dlc_status unpack(dlc_endpoint *e, void *dst, void *src, size_t bytes) {
    if (e->host_memory) {
        memcpy(dst, src, bytes);
        return DLC_OK;
    }
    dlc_status status = copy_out(e, dst, src, bytes);
    return status == DLC_OK ? copies_done(e) : status;
}

/* A receive is posted for a message that has begun to arrive already. */
static dlc_status match_unexpected(dlc_endpoint *e, peer *p, dlc_request *early,
                                   dlc_request *r) {
    dlc_status status = DLC_OK;

    if (early->bytes != r->bytes) {
        r->sent = early->bytes;
        r->status = DLC_ERR_CONFIG;
    } else if (early->moved > 0) {
        status = unpack(e, r->target, early->target, early->moved);
    }
    r->moved = early->moved;
    r->done = early->done;
    if (p->current == early)
        p->current = r;
    request_free(e, early);
    return status;
}

dlc_status messages_recv(dlc_endpoint *e, int32_t from, dlc_tag tag, void *buffer,
                         size_t bytes, dlc_request **request) {
    peer *p = find_peer(e, from);
    if (!p)
        return DLC_ERR_CONFIG;
    dlc_request *r = request_new(e, tag, bytes);
    if (!r)
        return DLC_ERR_NOMEM;
    r->from = from;
    r->target = buffer;
    dlc_status status = DLC_OK;
    dlc_request *early = queue_take(&p->unexpected, tag);
    if (early) {
        status = match_unexpected(e, p, early, r);
        if (!r->done)
            e->receiving++;
    } else {
        queue_add(&p->receives, r);
        e->receiving++;
    }
    if (status != DLC_OK)
        return status;
    *request = r;
    return DLC_OK;
}

dlc_status messages_finish(dlc_endpoint *e, dlc_request *r) {
    dlc_status status = r->status;
    if (status != DLC_OK)
        status = host->fail(status,
                            "message from rank %d, tag %" PRIu64 ": %zu bytes were "
                            "sent, %zu are expected",
                            r->from, r->tag, r->sent, r->bytes);
    request_free(e, r);
    return status;
}

dlc_status messages_test(dlc_endpoint *e, dlc_request *r, int *done) {
    int moved = 0;
    if (!r->done) {
        dlc_status status = messages_move(e, &moved);
        if (status != DLC_OK)
            return status;
    }
    *done = r->done;
    return r->done ? messages_finish(e, r) : DLC_OK;
}

static int is_done(const dlc_endpoint *e, const void *what) {
    (void)e;
    return ((const dlc_request *)what)->done;
}

dlc_status messages_wait(dlc_endpoint *e, dlc_request *r) {
    dlc_status status = wait_until(e, is_done, r, NULL);
    return status == DLC_OK ? messages_finish(e, r) : status;
}

int32_t messages_find(const dlc_endpoint *e, dlc_request *const *requests,
                      int32_t count) {
    int32_t first = e->turn < count ? e->turn : 0;
    for (int32_t k = 0; k < count; k++) {
        int32_t i = k < count - first ? first + k : first + k - count;
        if (requests[i] && requests[i]->done)
            return i;
    }
    return -1;
}
