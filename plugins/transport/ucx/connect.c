/* Connections to the peers: all are established when the group opens.
 *
 * UCX would establish them on first use. But while it does, the death of the peer or
 * the end of the worker makes UCX 1.13 abort the process. So every rank sends a hello
 * to every other, waits for all hellos, and flushes what it has sent. Other ranks may
 * still need it to make progress then, since a connection has several lanes; so it
 * sends a second hello, and goes on when all ranks have done so. From then on no
 * connection is half open.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ucx.h"

#define MS 1000000u
/* How long to wait for the next hello. Where the network drops what is sent, nothing
 * else says so: the kernel tries for minutes. */
#define ANSWER_NS (20000 * (uint64_t)MS)
/* Longest flush in close, and */
#define FLUSH_NS (500 * MS)
/* where sends remain that will never be received. */
#define FLUSH_HASTILY_NS (20 * MS)

/* Gives the peers more time for the next answer. */
static void wait_longer(dlc_endpoint *e) {
    e->answer_ns = 0;
    e->checked_ns = host->now_ns();
}

static ucs_status_t on_hello(void *endpoint, const void *head, size_t head_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param) {
    dlc_endpoint *e = endpoint;
    hello its = {.round = HELLO_ROUNDS};

    (void)data, (void)bytes, (void)param;
    if (head_bytes == sizeof its)
        memcpy(&its, head, sizeof its);
    if (its.round >= HELLO_ROUNDS || !is_rank(e, its.from))
        return UCS_OK;
    e->peers[its.from].hellos = its.round + 1;
    wait_longer(e);
    if (++e->hellos[its.round] == e->ranks - 1)
        e->all_hellos[its.round] = 1;
    return UCS_OK;
}

dlc_status connect_handlers(dlc_endpoint *e) {
    const ucp_am_recv_callback_t calls[] = {[HELLO_ID] = on_hello,
                                            [MESSAGE_ID] = receive_handler,
                                            [CTS_ID] = rendezvous_on_cts};
    for (unsigned id = 0; id < IDS; id++) {
        ucp_am_handler_param_t handler = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                          UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = id,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = calls[id],
            .arg = id == HELLO_ID ? e : e->owner};
        ucs_status_t status = ucx.worker_set_am_recv_handler(e->worker, &handler);
        if (status != UCS_OK)
            return host->fail(DLC_ERR_UNAVAILABLE,
                              "UCX cannot register its message handlers: %s",
                              ucx.text_of(status));
    }
    return DLC_OK;
}

static void flushed(void *request, ucs_status_t status, void *context) {
    dlc_endpoint *e = context;
    (void)status; /* later calls report the error */
    e->flushed = --e->flushing == 0;
    ucx.request_free(request);
}

static void begin_flush(dlc_endpoint *e) {
    ucp_request_param_t how = how_to_send(e, flushed, e);
    e->flushing += UCS_PTR_IS_PTR(ucx.worker_flush_nbx(e->worker, &how));
    e->flushed = e->flushing == 0;
}

void connect_flush(dlc_endpoint *e, int32_t rank) {
    ucp_request_param_t how = how_to_send(e, flushed, e);
    e->flushing += UCS_PTR_IS_PTR(ucx.ep_flush_nbx(e->peers[rank].ep, &how));
}

/* Flushes endpoint by endpoint: a worker flush leaves out what waits for room in a
 * peer's queue, such as the completion of a fetch. Over TCP this needs peers that make
 * progress, so only close uses it. */
static void begin_ep_flushes(dlc_endpoint *e) {
    for (int32_t r = 0; r < e->ranks; r++)
        if (r != e->rank)
            connect_flush(e, r);
    e->flushed = e->flushing == 0;
}

static dlc_status connect_peer(dlc_endpoint *e, int32_t rank) {
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = e->peers[rank].address};
    ucs_status_t status = ucx.ep_create(e->worker, &params, &e->peers[rank].ep);
    return status == UCS_OK ? DLC_OK : endpoint_lost(e, rank, status);
}

/* Counts as a flush until it has left: where a peer's queue is full, a flush of the
 * worker does not wait for it, and a rank that waits elsewhere sends nothing. */
static dlc_status send_hello(dlc_endpoint *e, int32_t rank, unsigned round) {
    ucp_request_param_t how = how_to_send(e, flushed, e);
    e->sent_hello[round] = (hello){round, e->rank};
    ucs_status_ptr_t request = ucx.am_send_nbx(e->peers[rank].ep, HELLO_ID,
                                               &e->sent_hello[round], sizeof(hello),
                                               NULL, 0, &how);
    e->flushing += UCS_PTR_IS_PTR(request);
    return UCS_PTR_IS_ERR(request) ? endpoint_lost(e, rank, UCS_PTR_STATUS(request))
                                   : DLC_OK;
}

static dlc_status send_hellos(dlc_endpoint *e, unsigned round) {
    dlc_status status = DLC_OK;

    e->round = round;
    wait_longer(e);
    for (int32_t i = 1; i < e->ranks && status == DLC_OK; i++)
        status = send_hello(e, (e->rank + i) % e->ranks,
                            round); /* each rank starts with another one */
    if (status == DLC_OK && e->ranks > 1)
        status = wait_for(e, &e->all_hellos[round], 0);
    if (status != DLC_OK)
        return status;
    wait_longer(e);
    begin_flush(e);
    return wait_for(e, &e->flushed, 0);
}

static dlc_status fail_late(const dlc_endpoint *e) {
    char names[192];
    int32_t r = 0;
    while (r < e->ranks && (r == e->rank || e->peers[r].hellos > e->round))
        r++;
    if (r == e->ranks)
        return host->fail(DLC_ERR_PEER, "UCX's first messages do not leave: does the "
                                        "network between the machines work?");
    names_of_ep(e->peers[r].ep, names, sizeof names);
    return host->fail(
        DLC_ERR_PEER,
        "rank %d on %.64s does not answer over %s: does its adapter reach "
        "this machine, and does a firewall let UCX through? Name the "
        "adapters to use in [transport] net_devices",
        r, host_of(e, r), names[0] ? names : "UCX");
}

/* Of a longer pause only a second counts: this process may have been stopped. */
dlc_status connect_check(dlc_endpoint *e) {
    uint64_t now = host->now_ns(), passed = now - e->checked_ns;
    e->checked_ns = now;
    e->answer_ns += passed < 1000 * (uint64_t)MS ? passed : 1000 * (uint64_t)MS;
    return e->answer_ns > ANSWER_NS ? fail_late(e) : DLC_OK;
}

/* UCX_RNDV_THRESH, if set, takes precedence over our rendezvous protocol. */
static void find_tcp_peers(dlc_endpoint *e) {
    int ours = e->host_memory && !getenv("UCX_RNDV_THRESH");
    for (int32_t r = 0; r < e->ranks; r++) {
        char names[192];
        if (r == e->rank)
            continue;
        names_of_ep(e->peers[r].ep, names, sizeof names);
        e->peers[r].has_tcp = strstr(names, "tcp/") != NULL;
        e->peers[r].tcp_only = ours && strncmp(names, "tcp/", 4) == 0 &&
                               !strchr(names, ',');
        e->has_tcp_peers |= e->peers[r].tcp_only;
    }
}

dlc_status connect_all(dlc_endpoint *e) {
    unsigned char mine = 0;
    dlc_status status = DLC_OK;

    e->connecting = 1;
    for (int32_t r = 0; r < e->ranks && status == DLC_OK; r++)
        status = connect_peer(e, r);
    for (unsigned round = 0; round < HELLO_ROUNDS && status == DLC_OK; round++)
        status = send_hellos(e, round);
    e->connecting = 0;
    if (status != DLC_OK)
        return status;

    find_tcp_peers(e);
    /* No rank may continue, and perhaps exit, before all are connected. */
    unsigned char *all = host->alloc((size_t)e->ranks);
    if (!all)
        return DLC_ERR_NOMEM;
    status = e->args->oob_all_gather(e->args->job, &mine, 1, all);
    host->free(all);
    e->connected = status == DLC_OK;
    return status;
}

static int is_in_flight(const dlc_endpoint *e) {
    return e->owner->unsent > 0 || e->owner->fetches > 0;
}

/* A send is done when its buffer is free; UCX may still hold its bytes. They should
 * reach their receivers, but no peer may block us. */
static void flush(dlc_endpoint *e) {
    uint64_t since = host->now_ns(),
             limit = e->owner->unsent > 0 ? FLUSH_HASTILY_NS : FLUSH_NS;

    if (e->args->check(e->args->job) != DLC_OK)
        return;
    /* UCX 1.13 sometimes aborts the process when it goes on with chunks that it fetches
     * over TCP from peers that close, too (tcp_ep.c: PUT_TX_WAITING_ACK). */
    if (e->staged && is_in_flight(e))
        return;
    begin_ep_flushes(e);
    for (unsigned round = 1; !e->flushed && host->now_ns() - since < limit; round++) {
        (void)ucx.worker_progress(e->worker);
        if (round % 64 == 0) {
            if (e->args->check(e->args->job) != DLC_OK)
                return;
            usleep(50);
        }
    }
}

/* Keeps what cannot be closed until the process exits. */
static void abandon(void *what) {
    static struct abandoned {
        struct abandoned *next;
        void *what;
    } * all;
    struct abandoned *one = host->alloc(sizeof *one);
    if (one) {
        *one = (struct abandoned){all, what};
        all = one;
    }
    (void)all; /* keeps it reachable, so that it is not reported as a leak */
}

void connect_close(dlc_endpoint *e) {
    int has_eps = 0;
    for (int32_t r = 0; r < e->ranks && e->peers; r++)
        has_eps |= e->peers[r].ep != NULL;
    if (e->connected)
        flush(e);
    e->closing = 1;
    e->fast_path = 0;
    /* Half-open connections cannot be closed, nor messages cancelled in UCX versions
     * that abort then. */
    if (has_eps &&
        (!e->connected || (is_in_flight(e) && !library_closes_in_flight()))) {
        abandon(e->worker);
        abandon(e->context);
        return;
    }
    if (e->worker) {
        receive_release(e);
        ucx.worker_destroy(e->worker);
    }
    if (e->context)
        ucx.cleanup(e->context);
}
