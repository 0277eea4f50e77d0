/* Large messages over TCP: of each the first part is sent, and the rest when the peer
 * answers that there is a receive for it. So no rank must keep more than that of a
 * message that it hasn't asked for, and where it has, the line doesn't wait for the
 * answer. */
#include <stddef.h>
#include <string.h>

#include "ucx.h"

/* Bytes that may leave unasked: sums are sent in pieces of this size. */
enum { FIRST_PART = 1 << 20 };

/* What of a header an answer is. */
typedef struct answer {
    uint32_t number; /* of the message */
    int32_t from;
} answer;

_Static_assert(offsetof(header, from) - offsetof(header, number) ==
                   offsetof(answer, from),
               "an answer lies in a header");

size_t offer_limit(const dlc_endpoint *e, const dlc_request *r) {
    return e->staged || r->wanted || r->bytes <= FIRST_PART ? r->bytes : FIRST_PART;
}

/* In a callback. The receive stays until all bytes have come, so the words may lie in
 * it. */
void offer_accept(dlc_endpoint *e, dlc_request *r, const header *head) {
    if (e->staged || head->offset > 0 || head->bytes <= FIRST_PART)
        return;
    r->header.from = e->rank;
    ucs_status_t status = send_word(e, r->peer, ANSWER_ID, &r->header.number,
                                    sizeof(answer));
    if (status != UCS_OK && e->broken == UCS_OK) {
        e->broken = status;
        e->broken_peer = r->peer;
    }
}

ucs_status_t offer_answered(void *endpoint, const void *head, size_t head_bytes,
                            void *data, size_t bytes,
                            const ucp_am_recv_param_t *param) {
    dlc_endpoint *e = endpoint;
    answer told = {0, -1};

    (void)data, (void)bytes, (void)param;
    if (head_bytes == sizeof told)
        memcpy(&told, head, sizeof told);
    if (e->closing || told.from < 0 || told.from >= e->ranks)
        return UCS_OK;
    peer *p = &e->peers[told.from];
    dlc_request *r = of_number(&p->staged, told.number);
    if (!r && (r = of_number(&p->offered, told.number)) != NULL) {
        queue_remove(&p->offered, r);
        chunks_queue(e, r);
    }
    if (r)
        r->wanted = 1;
    return UCS_OK;
}
