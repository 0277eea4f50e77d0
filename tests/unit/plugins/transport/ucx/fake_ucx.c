/* UCX's calls, as far as messages need them. Like UCX, it offers large messages, which
 * the receiver fetches, and reuses the buffers of small ones after the handler. */
#include "fake_ucx.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/object.h"

enum { RENDEZVOUS_BYTES = 12000, HEAD_MOST = 64 };

typedef struct packet {
    unsigned char head[HEAD_MOST], *copy;
    size_t head_bytes, bytes;
    const void *source; /* of an offered message */
    ucp_request_param_t how;
    int is_pending; /* the send was not complete on return */
    int is_done;    /* it has completed since */
} packet;

const dlc_host *host;
ucx_calls ucx;

static dlc_endpoint endpoint[2];
static peer peers[2][2];
static packet packets[PACKETS_MOST];
static int sent, is_slow;

/* ---- UCX's calls ----------------------------------------------------------------- */

static ucs_status_ptr_t am_send(ucp_ep_h ep, unsigned id, const void *head,
                                size_t head_bytes, const void *buffer, size_t bytes,
                                const ucp_request_param_t *how) {
    (void)ep;
    if (id == CTS_ID) { /* arrives at once */
        rendezvous_on_cts(&endpoint[0], head, head_bytes, NULL, 0, NULL);
        return NULL;
    }
    ck_assert_int_lt(sent, PACKETS_MOST);
    packet *p = &packets[sent++];
    *p = (packet){.head_bytes = head_bytes, .bytes = bytes, .how = *how};
    ck_assert_uint_le(head_bytes, sizeof p->head);
    if (head_bytes)
        memcpy(p->head, head, head_bytes);
    if (bytes > RENDEZVOUS_BYTES && !(how->flags & UCP_AM_SEND_FLAG_EAGER)) {
        p->source = buffer;
        p->is_pending = 1;
        return p;
    }
    p->copy = malloc(bytes + 1);
    ck_assert_ptr_nonnull(p->copy);
    if (bytes)
        memcpy(p->copy, buffer, bytes);
    p->is_pending = is_slow && how->op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK;
    return p->is_pending ? p : NULL;
}

static void finish(packet *p) {
    ck_assert_int_eq(p->is_done, 0);
    p->is_done = 1;
    p->how.cb.send(p, UCS_OK, p->how.user_data);
}

static ucs_status_ptr_t am_recv_data(ucp_worker_h worker, void *data, void *buffer,
                                     size_t bytes, const ucp_request_param_t *how) {
    packet *p = data;
    (void)worker;
    (void)how;
    ck_assert_uint_eq(bytes, p->bytes);
    memcpy(buffer, p->source, bytes);
    finish(p);
    return NULL;
}

static void am_data_release(ucp_worker_h worker, void *data) {
    (void)worker;
    finish(data);
}

static void request_free_nothing(void *request) {
    (void)request;
}

static unsigned no_progress(ucp_worker_h worker) {
    (void)worker;
    return 0;
}

/* ---- Of the rest of the plugin --------------------------------------------------- */

dlc_status endpoint_no_rank(const dlc_endpoint *e, int32_t rank) {
    (void)e;
    ck_abort_msg("there is no rank %d", (int)rank);
    return DLC_ERR_INTERNAL;
}

dlc_status endpoint_lost(dlc_endpoint *e, int32_t rank, ucs_status_t why) {
    (void)e;
    ck_abort_msg("rank %d is lost: %d", (int)rank, (int)why);
    return DLC_ERR_PEER;
}

dlc_status check_error(dlc_endpoint *e) {
    return e->failed;
}

dlc_status wait_for(dlc_endpoint *e, const int *done, int several) {
    (void)several;
    ck_assert_msg(*done, "nobody delivers what is waited for");
    return e->failed;
}

static int flushes;

void connect_flush(dlc_endpoint *e, int32_t to) {
    (void)e, (void)to;
    flushes++;
}

int network_flushes(void) {
    return flushes;
}

/* ---- The network ----------------------------------------------------------------- */

void network_open(int tcp) {
    host = dlc_host_services();
    ucx = (ucx_calls){.am_send_nbx = am_send,
                      .am_recv_data_nbx = am_recv_data,
                      .am_data_release = am_data_release,
                      .request_free = request_free_nothing,
                      .worker_progress = no_progress};
    memset(peers, 0, sizeof peers);
    sent = is_slow = flushes = 0;
    for (int32_t r = 0; r < 2; r++) {
        endpoint[r] = (dlc_endpoint){.rank = r,
                                     .ranks = 2,
                                     .peers = peers[r],
                                     .fast_path = 1,
                                     .host_memory = 1,
                                     .has_tcp_peers = tcp};
        endpoint[r].completed = (dlc_request){.done = 1};
        endpoint[r].packed.from = r;
        peers[r][1 - r].tcp_only = tcp;
    }
}

void network_close(void) {
    for (int i = 0; i < sent; i++) {
        ck_assert_int_eq(packets[i].is_done, packets[i].is_pending);
        free(packets[i].copy);
    }
    sent = 0;
    for (int32_t r = 0; r < 2; r++) {
        receive_release(&endpoint[r]);
        requests_close(&endpoint[r]);
        receive_close(&endpoint[r]);
        chunks_close(&endpoint[r]);
    }
}

dlc_endpoint *network_endpoint(int32_t rank) {
    return &endpoint[rank];
}

void network_slow_down(void) {
    is_slow = 1;
}

void network_complete(int i) {
    finish(&packets[i]);
}

int network_packets(void) {
    return sent;
}

void network_deliver(int i) {
    packet *p = &packets[i];
    const ucp_am_recv_param_t param = {
        .recv_attr = p->source ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0};
    ucs_status_t status = receive_handler(&endpoint[1], p->head, p->head_bytes,
                                          p->source ? (void *)p : p->copy, p->bytes,
                                          &param);
    if (!p->source)
        memset(p->copy, 0xee, p->bytes);
    else if (status == UCS_OK)
        finish(p);
}

void network_inject(const void *head, size_t head_bytes, void *data, size_t bytes) {
    const ucp_am_recv_param_t param = {0};
    ck_assert_int_eq(
        receive_handler(&endpoint[1], head, head_bytes, data, bytes, &param), UCS_OK);
}
