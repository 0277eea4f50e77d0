/* The ways to the peers: all of them are made, and tried, when the group opens.
 *
 * UCX would make them as they are used. But as long as it is about to make one it
 * cannot bear that the peer dies, or that the worker ends: 1.13 then ends the process.
 * So every rank greets every other and waits until all have greeted it and what it has
 * sent is through. Others may still need it to move on then, since a way has several
 * lanes; so it greets them again, and goes on when all have done so. From then on
 * nothing is half made.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ucx.h"

#define MS 1000000u
/* How long close lets what was given to UCX leave ... */
#define FLUSH_NS (500 * MS)
/* ... where some of it will never be taken. */
#define FLUSH_HASTILY_NS (20 * MS)

static ucs_status_t greeting(void *endpoint, const void *head, size_t head_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param) {
    dlc_endpoint *e = endpoint;
    const unsigned char *round = head;

    (void)data, (void)bytes, (void)param;
    if (head_bytes == 1 && *round < GREETINGS && ++e->greeted[*round] == e->ranks - 1)
        e->met[*round] = 1;
    return UCS_OK;
}

dlc_status connect_handlers(dlc_endpoint *e) {
    const ucp_am_recv_callback_t calls[] = {
        [GREETING_ID] = greeting, [MESSAGE_ID] = arrival, [ANSWER_ID] = offer_answered};
    for (unsigned id = 0; id < IDS; id++) {
        ucp_am_handler_param_t handler = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                          UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = id,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = calls[id],
            .arg = e};
        ucs_status_t status = ucx.worker_set_am_recv_handler(e->worker, &handler);
        if (status != UCS_OK)
            return host->fail(DLC_ERR_UNAVAILABLE, "UCX takes no messages: %s",
                              ucx.text_of(status));
    }
    return DLC_OK;
}

static void flushed(void *request, ucs_status_t status, void *context) {
    dlc_endpoint *e = context;
    (void)status; /* whoever waits for it finds out */
    e->flushed = --e->flushing == 0;
    ucx.request_free(request);
}

static void begin_flush(dlc_endpoint *e) {
    ucp_request_param_t how = how_to_send(e, flushed, e);
    e->flushing = UCS_PTR_IS_PTR(ucx.worker_flush_nbx(e->worker, &how));
    e->flushed = e->flushing == 0;
}

/* Way by way: what UCX flushes all at once leaves out what waits for room in a peer's
 * queue, such as the word that its message has been fetched. But over TCP this needs
 * peers that move on, which only close can do without. */
static void begin_thorough_flush(dlc_endpoint *e) {
    ucp_request_param_t how = how_to_send(e, flushed, e);
    e->flushing = 0;
    for (int32_t r = 0; r < e->ranks; r++)
        if (r != e->rank)
            e->flushing += UCS_PTR_IS_PTR(ucx.ep_flush_nbx(e->peers[r].ep, &how));
    e->flushed = e->flushing == 0;
}

static dlc_status make_way(dlc_endpoint *e, int32_t rank) {
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = e->peers[rank].address};
    ucs_status_t status = ucx.ep_create(e->worker, &params, &e->peers[rank].ep);
    return status == UCS_OK ? DLC_OK : endpoint_lost(e, rank, status);
}

static dlc_status greet(dlc_endpoint *e, int32_t rank, unsigned round) {
    static const unsigned char words[GREETINGS] = {0, 1};
    ucs_status_t status = send_word(e, rank, GREETING_ID, &words[round], 1);
    return status == UCS_OK ? DLC_OK : endpoint_lost(e, rank, status);
}

static dlc_status greet_all(dlc_endpoint *e, unsigned round) {
    dlc_status status = DLC_OK;

    for (int32_t i = 1; i < e->ranks && status == DLC_OK; i++)
        status = greet(e, (e->rank + i) % e->ranks, round); /* not all the same */
    if (status == DLC_OK && e->ranks > 1)
        status = wait_for(e, &e->met[round], 0);
    if (status != DLC_OK)
        return status;
    begin_flush(e);
    return wait_for(e, &e->flushed, 0);
}

/* Who tells UCX from which size on bytes are to be offered is obeyed. */
static void find_streams(dlc_endpoint *e) {
    if (!e->near || getenv("UCX_RNDV_THRESH"))
        return;
    for (int32_t r = 0; r < e->ranks; r++) {
        char names[192];
        if (r == e->rank)
            continue;
        names_of_ep(e->peers[r].ep, names, sizeof names);
        e->peers[r].stream = strncmp(names, "tcp/", 4) == 0 && !strchr(names, ',');
        e->streams |= e->peers[r].stream;
    }
}

dlc_status connect_all(dlc_endpoint *e) {
    unsigned char mine = 0;
    dlc_status status = DLC_OK;

    for (int32_t r = 0; r < e->ranks && status == DLC_OK; r++)
        status = make_way(e, r);
    for (unsigned round = 0; round < GREETINGS && status == DLC_OK; round++)
        status = greet_all(e, round);
    if (status != DLC_OK)
        return status;

    find_streams(e);
    /* Nobody may go on, and perhaps away, before all are that far. */
    unsigned char *all = host->alloc((size_t)e->ranks);
    if (!all)
        return DLC_ERR_NOMEM;
    status = e->args->allgather(e->args->job, &mine, 1, all);
    host->free(all);
    e->connected = status == DLC_OK;
    return status;
}

static int is_under_way(const dlc_endpoint *e) {
    return e->unsent > 0 || e->fetches > 0;
}

/* A send is done when its buffer is free; its bytes may still be UCX's. They should
 * reach those who wait for them, but nobody may hold us up. */
static void flush(dlc_endpoint *e) {
    uint64_t since = host->now_ns(),
             limit = e->unsent > 0 ? FLUSH_HASTILY_NS : FLUSH_NS;

    if (e->args->check(e->args->job) != DLC_OK)
        return;
    /* UCX 1.13 aborts the process now and then where it goes on with chunks that it
     * fetches over TCP from peers that end, too (tcp_ep.c: PUT_TX_WAITING_ACK). */
    if (e->staged && is_under_way(e))
        return;
    begin_thorough_flush(e);
    for (unsigned round = 1; !e->flushed && host->now_ns() - since < limit; round++) {
        (void)ucx.worker_progress(e->worker);
        if (round % 64 == 0) {
            if (e->args->check(e->args->job) != DLC_OK)
                return;
            usleep(50);
        }
    }
}

/* What cannot be ended, where the process has nothing left to do but to end, stays. */
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
    (void)all; /* keeps them from being taken for leaks */
}

void connect_close(dlc_endpoint *e) {
    int begun = 0;
    for (int32_t r = 0; r < e->ranks && e->peers; r++)
        begun |= e->peers[r].ep != NULL;
    if (e->connected)
        flush(e);
    e->closing = 1;
    e->at_once = 0;
    /* Half-made ways cannot be given up, nor can messages where UCX doesn't bear it. */
    if (begun && (!e->connected || (is_under_way(e) && !library_bears_messages()))) {
        abandon(e->worker);
        abandon(e->context);
        return;
    }
    if (e->worker) {
        arrivals_decline(e);
        ucx.worker_destroy(e->worker);
    }
    if (e->context)
        ucx.cleanup(e->context);
}
