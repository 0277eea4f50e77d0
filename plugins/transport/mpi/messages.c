/* Messages: one MPI message each (several for large ones), under a number that stands
 * for the tag.
 *
 * MPI's tags are too small for 64 bits, and with a hash two tags could collide. So the
 * sender numbers every tag when it first uses it towards a peer, and announces the
 * number: a small message with MPI tag 0 before the first message with the new number.
 * A receive whose tag has not been announced waits for that; MPI preserves the order of
 * messages of one number, and receives are passed to it in the order of their calls, so
 * the order of a tag's messages is preserved.
 */
#include <inttypes.h>

#include "endpoint.h"

enum { ANNOUNCE = 0 };
/* MPI counts bytes in int. */
#define PIECE ((size_t)1 << 30)

/* ---- Requests ------------------------------------------------------------ */

static dlc_status make_request(dlc_endpoint *e, int32_t peer, dlc_tag tag, void *buffer,
                               size_t bytes, dlc_request **request) {
    dlc_request *r = host->alloc(sizeof *r);
    if (!r)
        return DLC_ERR_NOMEM;
    r->tag = tag;
    r->peer = peer;
    r->buffer = buffer;
    r->bytes = bytes;
    r->announced = r->one = MPI_REQUEST_NULL;
    r->pieces = bytes <= PIECE ? 1 : (bytes + PIECE - 1) / PIECE;
    r->piece = r->pieces == 1 ? &r->one : host->alloc(r->pieces * sizeof *r->piece);
    if (!r->piece) {
        host->free(r);
        return DLC_ERR_NOMEM;
    }
    for (size_t i = 0; i < r->pieces; i++)
        r->piece[i] = MPI_REQUEST_NULL;
    r->next = e->in_flight;
    if (r->next)
        r->next->prior = r;
    e->in_flight = r;
    e->in_flight_count++;
    *request = r;
    return DLC_OK;
}

static void free_request(dlc_endpoint *e, dlc_request *r) {
    if (r->prior)
        r->prior->next = r->next;
    else
        e->in_flight = r->next;
    if (r->next)
        r->next->prior = r->prior;
    if (r->piece != &r->one)
        host->free(r->piece);
    host->free(r);
    e->in_flight_count--;
}

static size_t piece_bytes(const dlc_request *r, size_t i) {
    size_t rest = r->bytes - i * PIECE;
    return rest < PIECE ? rest : PIECE;
}

/* Starts the MPI operations of all pieces. */
static dlc_status post(dlc_endpoint *e, dlc_request *r, int number) {
    for (size_t i = 0; i < r->pieces; i++) {
        unsigned char *at = r->buffer + i * PIECE;
        int bytes = (int)piece_bytes(r, i), code;
        code = r->is_receive ? MPI_Irecv(at, bytes, MPI_BYTE, r->peer, number, e->comm,
                                         &r->piece[i])
                             : MPI_Isend(at, bytes, MPI_BYTE, r->peer, number, e->comm,
                                         &r->piece[i]);
        if (code != MPI_SUCCESS)
            return world_failed(e, code, r->is_receive ? "receiving" : "sending");
    }
    r->posted = 1;
    return DLC_OK;
}

/* ---- Tags ---------------------------------------------------------------- */

/* The number of a tag for this peer; announces a new one. */
static dlc_status number_out(dlc_endpoint *e, dlc_request *r, int *number) {
    tag_table *out = &e->peers[r->peer].out;
    int found = tags_find(out, r->tag);
    if (!found) {
        found = (int)out->count + 1;
        dlc_status status = tags_add(out, r->tag, found);
        if (status != DLC_OK)
            return status;
        r->announcement[0] = r->tag;
        r->announcement[1] = (uint64_t)found;
        int code = MPI_Isend(r->announcement, sizeof r->announcement, MPI_BYTE, r->peer,
                             ANNOUNCE, e->comm, &r->announced);
        if (code != MPI_SUCCESS)
            return world_failed(e, code, "sending");
    }
    *number = found;
    return DLC_OK;
}

/* Posts the receives that waited for this tag, in order. */
static dlc_status release(dlc_endpoint *e, peer_state *from, dlc_tag tag, int number) {
    dlc_request **link = &from->first, *last = NULL;
    dlc_status status = DLC_OK;
    while (*link && status == DLC_OK) {
        dlc_request *r = *link;
        if (r->tag != tag) {
            last = r;
            link = &r->waiting;
            continue;
        }
        *link = r->waiting;
        e->unknown_tags--;
        status = post(e, r, number);
    }
    if (!*link)
        from->last = last;
    return status;
}

/* Receives one announcement, if there is any. */
static dlc_status receive_announcement(dlc_endpoint *e, int *received) {
    uint64_t word[2];
    MPI_Status is;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, ANNOUNCE, e->comm, received, &is);
    if (code == MPI_SUCCESS && *received)
        code = MPI_Recv(word, sizeof word, MPI_BYTE, is.MPI_SOURCE, ANNOUNCE, e->comm,
                        MPI_STATUS_IGNORE); /* has arrived: does not block */
    if (code != MPI_SUCCESS)
        return world_failed(e, code, "receiving");
    if (!*received)
        return DLC_OK;
    peer_state *from = &e->peers[is.MPI_SOURCE];
    dlc_status status = tags_add(&from->in, word[0], (int)word[1]);
    return status == DLC_OK ? release(e, from, word[0], (int)word[1]) : status;
}

static dlc_status receive_announcements(dlc_endpoint *e) {
    dlc_status status = DLC_OK;
    for (int received = 1; received && e->unknown_tags && status == DLC_OK;)
        status = receive_announcement(e, &received);
    return status;
}

/* ---- Sending and receiving ----------------------------------------------- */

static dlc_status check_peer(const dlc_endpoint *e, int32_t rank) {
    return rank >= 0 && rank < e->args->ranks
               ? DLC_OK
               : host->fail(DLC_ERR_INTERNAL, "there is no rank %d among %d", rank,
                            e->args->ranks);
}

/* A request that MPI may be using is kept until the endpoint closes. */
static dlc_status abandon(dlc_endpoint *e, dlc_status status) {
    e->failed = 1;
    return status;
}

dlc_status messages_send(dlc_endpoint *e, int32_t to, dlc_tag tag, const void *buffer,
                         size_t bytes, dlc_request **request) {
    dlc_request *r = NULL;
    int number = 0;
    dlc_status status = check_peer(e, to);
    if (status == DLC_OK) /* MPI only reads the buffer */
        status = make_request(e, to, tag, (void *)(uintptr_t)buffer, bytes, &r);
    if (status != DLC_OK)
        return status;
    status = number_out(e, r, &number);
    if (status == DLC_OK)
        status = post(e, r, number);
    if (status != DLC_OK)
        return abandon(e, status);
    *request = r;
    return DLC_OK;
}

dlc_status messages_recv(dlc_endpoint *e, int32_t from, dlc_tag tag, void *buffer,
                         size_t bytes, dlc_request **request) {
    dlc_request *r = NULL;
    dlc_status status = check_peer(e, from);
    if (status == DLC_OK)
        status = make_request(e, from, tag, buffer, bytes, &r);
    if (status != DLC_OK)
        return status;
    peer_state *p = &e->peers[from];
    int number = tags_find(&p->in, tag);
    r->is_receive = 1;
    if (number) {
        status = post(e, r, number);
    } else {
        if (p->last)
            p->last->waiting = r;
        else
            p->first = r;
        p->last = r;
        e->unknown_tags++;
        status = receive_announcements(e);
    }
    if (status != DLC_OK)
        return abandon(e, status);
    *request = r;
    return DLC_OK;
}

/* ---- Completion ----------------------------------------------------------------- */

static dlc_status wrong_size(dlc_endpoint *e, const dlc_request *r, const char *how) {
    e->failed = 1;
    return host->fail(DLC_ERR_CONFIG,
                      "a message from rank %d with tag %" PRIx64 " has %s than the %zu "
                      "bytes that were asked for",
                      r->peer, r->tag, how, r->bytes);
}

/* Counts and checks the bytes received for a piece. */
static dlc_status check_received(dlc_endpoint *e, dlc_request *r, int code,
                                 MPI_Status *is) {
    int bytes = 0, class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) {
        MPI_Error_class(code, &class);
        return class == MPI_ERR_TRUNCATE ? wrong_size(e, r, "more")
                                         : world_failed(e, code, "receiving");
    }
    MPI_Get_count(is, MPI_BYTE, &bytes);
    r->moved += (size_t)bytes;
    return (size_t)bytes == piece_bytes(r, r->done) ? DLC_OK : wrong_size(e, r, "less");
}

static dlc_status test_pieces(dlc_endpoint *e, dlc_request *r, int *done) {
    MPI_Status is;
    int flag = 1;
    while (r->done < r->pieces) {
        int code = MPI_Test(&r->piece[r->done], &flag, &is);
        dlc_status status = DLC_OK;
        if (r->is_receive && (flag || code != MPI_SUCCESS))
            status = check_received(e, r, code, &is);
        else if (code != MPI_SUCCESS)
            status = world_failed(e, code, "sending");
        if (status != DLC_OK)
            return status;
        if (!flag)
            return DLC_OK;
        r->done++;
    }
    if (r->announced != MPI_REQUEST_NULL) {
        int code = MPI_Test(&r->announced, &flag, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return world_failed(e, code, "sending");
    }
    *done = flag;
    return DLC_OK;
}

static dlc_status poll_request(dlc_endpoint *e, void *what, int *holds) {
    dlc_request *r = what;
    dlc_status status = e->unknown_tags ? receive_announcements(e) : DLC_OK;
    if (status != DLC_OK)
        return abandon(e, status);
    if (r->is_receive && !r->posted)
        return DLC_OK;
    return test_pieces(e, r, holds);
}

dlc_status messages_test(dlc_endpoint *e, dlc_request *r, int *done) {
    int holds = 0;
    dlc_status status = poll_request(e, r, &holds);
    if (status != DLC_OK)
        return status;
    if (holds)
        free_request(e, r);
    *done = holds;
    return DLC_OK;
}

dlc_status messages_wait(dlc_endpoint *e, dlc_request *r) {
    dlc_status status = wait_until(e, poll_request, r);
    if (status == DLC_OK)
        free_request(e, r);
    return status;
}

/* ---- Closing -------------------------------------------------------------------- */

/* Cancels a receive; returns 0 if a message has arrived for it, or still may. */
static int cancel(MPI_Request *receive) {
    MPI_Status status;
    int done = 0, cancelled = 0;
    if (MPI_Cancel(receive) == MPI_SUCCESS)
        (void)MPI_Test(receive, &done, &status);
    if (done)
        return MPI_Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled;
    MPI_Request_free(receive);
    return 0;
}

/* Cancels everything in flight. MPI may still write to buffers of receives that it
 * cannot cancel, so those requests are leaked. */
void messages_close(dlc_endpoint *e) {
    while (e->in_flight) {
        dlc_request *r = e->in_flight;
        int cancelled = r->is_receive;
        for (size_t i = 0; i < r->pieces; i++) {
            if (r->piece[i] == MPI_REQUEST_NULL)
                continue;
            if (r->is_receive)
                cancelled &= cancel(&r->piece[i]);
            else
                MPI_Request_free(&r->piece[i]);
        }
        if (r->announced != MPI_REQUEST_NULL)
            MPI_Request_free(&r->announced);
        if (!cancelled)
            e->failed = 1; /* close must not wait for peers */
        free_request(e, r);
    }
}
