/* A rendezvous protocol for large messages over TCP: the first part is sent at once,
 * and the rest when the peer has a receive for it and sends a clear-to-send (CTS). So
 * no rank must buffer more than the first part of an unexpected message, and where the
 * receive is posted, the link does not wait for the CTS. */
#include <stddef.h>
#include <string.h>

#include "ucx.h"

/* Bytes sent without a CTS; gradient buckets are reduced in fragments of this size. */
enum { EAGER_BYTES = 1 << 20 };

/* A clear-to-send: a part of the header of its message. */
typedef struct clear_to_send {
    uint32_t number; /* of the message */
    int32_t from;
} clear_to_send;

_Static_assert(offsetof(header, from) - offsetof(header, number) ==
                   offsetof(clear_to_send, from),
               "a clear_to_send is part of a header");

size_t rendezvous_limit(const dlc_endpoint *e, const dlc_request *r) {
    return e->staged || r->clear_to_send || r->bytes <= EAGER_BYTES ? r->bytes
                                                                    : EAGER_BYTES;
}

/* Runs in a callback. The receive outlives the message, so its header can be the buffer
 * of the control message. */
void rendezvous_send_cts(dlc_endpoint *e, dlc_request *r, const header *head) {
    if (e->staged || head->offset > 0 || head->bytes <= EAGER_BYTES)
        return;
    r->header.from = e->rank;
    ucs_status_t status = send_control(e, r->peer, CTS_ID, &r->header.number,
                                       sizeof(clear_to_send));
    if (status != UCS_OK && e->broken == UCS_OK) {
        e->broken = status;
        e->broken_peer = r->peer;
    }
}

ucs_status_t rendezvous_on_cts(void *endpoint, const void *head, size_t head_bytes,
                               void *data, size_t bytes,
                               const ucp_am_recv_param_t *param) {
    dlc_endpoint *e = endpoint;
    clear_to_send cts = {0, -1};

    (void)data, (void)bytes, (void)param;
    if (head_bytes == sizeof cts)
        memcpy(&cts, head, sizeof cts);
    if (e->closing || cts.from < 0 || cts.from >= e->ranks)
        return UCS_OK;
    peer *p = &e->peers[cts.from];
    dlc_request *r = find_number(&p->staged, cts.number);
    if (!r && (r = find_number(&p->offered, cts.number)) != NULL) {
        queue_remove(&p->offered, r);
        chunks_queue(e, r);
    }
    if (r)
        r->clear_to_send = 1;
    return UCS_OK;
}
