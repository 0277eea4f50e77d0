/* Internals of the UCX transport.
 *
 * Messages are sent as UCX active messages. Each carries a header of our own with the
 * full 64-bit tag, a sequence number per pair of ranks, and the size, so that tags
 * match exactly and in order, and sizes are compared, in receive.c. UCX moves the
 * bytes: small messages together with the header (eager), large ones straight into the
 * receive buffer once it is known (rendezvous).
 *
 * Where the device memory of any rank is neither host memory nor known to UCX, messages
 * go in chunks through host memory. They also go in chunks, without a copy, to peers
 * that only TCP reaches (chunks.c, rendezvous.c).
 *
 * Failures. The UCX endpoints are opened without UCX's error handling: with it UCX does
 * not use shared memory, and it would still miss a hung peer. The job's control channel
 * decides which rank is lost; every wait calls args->check.
 */
#ifndef DLC_UCX_H
#define DLC_UCX_H

#include <pthread.h>

#include <dlcore/transport.h>

#include "library.h"

extern const dlc_host *host;

/* Precedes each message, or each fragment of one. An unfragmented message sends only
 * WHOLE_HEADER bytes of it, without what UCX reports anyway: that and 8 bytes of
 * payload fit one cache line. */
typedef struct header {
    dlc_tag tag;
    uint32_t number; /* sequence number of the message, from this rank to that */
    int32_t from;
    uint64_t bytes;  /* of the whole message */
    uint64_t offset; /* of this fragment in it */
} header;

#define WHOLE_HEADER offsetof(header, bytes)

/* A message short enough to be sent in one buffer with its header. */
enum { PACKED = 256 };
typedef struct packed {
    dlc_tag tag;
    uint32_t number;
    int32_t from;
    unsigned char bytes[PACKED];
} packed;

_Static_assert(offsetof(packed, bytes) == WHOLE_HEADER, "begins with a header");

/* A fragment of a message (perhaps all of it) that no receive can take yet. */
typedef struct fragment {
    struct fragment *next; /* in its list, or in the free list */
    struct fragment *made; /* list of all fragments, for close */
    header header;
    size_t bytes;
    enum {
        UNUSED,
        RENDEZVOUS, /* still at the sender: `data` is UCX's descriptor for
                       am_recv_data_nbx */
        FETCHING,   /* being fetched into `chunk` */
        RECEIVED,   /* at `data`, in `chunk` or in memory of its own */
    } state;
    void *data;
    struct chunk *chunk;
    dlc_endpoint *endpoint;
    dlc_request *receive; /* of a FETCHING fragment: its receive; NULL: none yet */
} fragment;

/* The fields that every message writes come first, in one cache line. */
struct dlc_request {
    dlc_request *next; /* in its queue, or in the free list */
    dlc_endpoint *endpoint;
    size_t bytes, moved;
    union {
        const unsigned char *source;
        unsigned char *target;
    };
    int32_t peer;
    enum { SEND, RECEIVE, UNEXPECTED } kind;
    int done;
    dlc_status status; /* DLC_ERR_CONFIG: the sizes differ, see `sent` */
    int chunks;        /* of a send, in flight */
    int clear_to_send; /* a send that may go out completely */
    int listed;        /* in its peer's `begun` */

    header header;
    fragment *fragments; /* of an unexpected message, in any order */
    dlc_request *made;   /* list of all requests, for close */
    size_t sent;         /* the sender's size, where it differs */
    ucs_status_t broken; /* UCX's error, where status is DLC_ERR_PEER */
};

typedef struct queue {
    dlc_request *first, *last;
} queue;

typedef struct peer {
    ucp_ep_h ep;
    uint32_t sent;    /* messages sent to it */
    uint32_t matched; /* messages from it that were matched to a request */
    queue receives;   /* posted, no fragment arrived */
    queue unexpected; /* arrived, not posted */
    fragment *early;  /* fragments of messages that overtook an earlier one */
    queue begun;      /* posted, some of several fragments arrived */
    const ucp_address_t *address;
    queue staged;       /* sends in chunks that may go out */
    queue offered;      /* sends that wait for a clear-to-send */
    int chunks;         /* in flight to it, over this rail */
    dlc_endpoint *rail; /* that had the last chunk; NULL: none */
    int tcp_only;       /* only TCP reaches it */
    int has_tcp;        /* TCP is one of those that do */
    unsigned hellos;    /* rounds whose hello it has sent */
    int owes;           /* it may not have been told that a fetch from it is done */
} peer;

/* chunks.c: a fragment being sent or fetched. */
typedef struct chunk {
    struct chunk *next; /* in the free list */
    struct chunk *made; /* list of all chunks */
    dlc_memory memory;  /* host staging memory, where the endpoint is staged */
    header header;
    dlc_endpoint *endpoint;
    dlc_endpoint *rail; /* that sends it */
    int32_t peer;
    dlc_request *request; /* the send that it is part of */
} chunk;

enum { HELLO_ROUNDS = 2 }; /* rounds of hello messages while the group opens */
typedef struct hello {
    uint32_t round;
    int32_t from;
} hello;

/* A chunk over TCP is as large as UCX delivers without reassembling it in memory of its
 * own. */
enum { STREAM_CHUNK = 60 << 10 };

/* wait.c: a thread that waits on this endpoint (the communication thread, or the main
 * thread when it waits for the communication). */
typedef struct waiter {
    pthread_t thread;
    int known;
    uint64_t poll_ns;    /* how long it polls before it sleeps */
    int core_idle;       /* its core was idle otherwise */
    uint64_t checked_ns; /* when `core_idle` was determined */
    uint64_t others_ns;  /* CPU time of the process's other threads by then */
} waiter;

enum { WAITERS = 2 };

/* The most adapters that are used at once. */
enum { RAILS = 4 };
typedef char rail_names[RAILS][16]; /* "eth0"; the others are "" */

struct dlc_endpoint {
    const dlc_transport_args *args;
    dlc_endpoint *owner; /* the endpoint that messages are of: itself, or that of which
                            this is a rail */
    dlc_endpoint *rail;  /* owned; over the next of several adapters; NULL: none */
    int epoll_fd;        /* of the workers of all rails; 0: one adapter is used */
    int32_t rank, ranks;
    peer *peers;
    int fast_path; /* fast path: the CPU copies to and from device memory, nothing is
                      staged */
    int closing;
    unsigned char *addresses; /* of all workers */
    ucp_context_h context;
    ucp_worker_h worker;
    int event_fd;
    int wakeup_fd;           /* wait_any.c: an eventfd */
    int32_t turn;            /* of wait_any: the request to look at first */
    uint64_t spin_ns;        /* least time to poll before sleeping */
    waiter waiters[WAITERS]; /* adapted to recent waits */
    int cores;               /* of this node, divided by its ranks */
    int has_tcp_peers;       /* some peers are reached by TCP only */
    int host_memory;         /* the CPU can read this device's memory */
    int staged;              /* all messages go in chunks through host memory */
    size_t chunk_bytes;      /* the same on all ranks */
    dlc_status failed;       /* in a callback, which cannot return an error */
    ucs_status_t broken;     /* error of UCX in a callback, about broken_peer */
    int32_t broken_peer;
    int32_t hellos[HELLO_ROUNDS];   /* hello messages received, by round */
    int all_hellos[HELLO_ROUNDS];   /* all have arrived */
    unsigned round;                 /* that is going on */
    hello sent_hello[HELLO_ROUNDS]; /* stay valid while they are sent */
    int connecting;
    uint64_t answer_ns, checked_ns; /* waited for the next hello, until then */
    int flushing;                   /* flushes, and hellos, that are not over */
    int flushed;
    int connected; /* with all peers */
    dlc_request *made, *free;
    dlc_request completed; /* the request of all sends that completed at once */
    fragment *fragments, *free_fragments;
    chunk *chunks, *free_chunks;
    size_t fetches; /* am_recv_data_nbx calls in flight */
    int32_t owing;  /* peers with `owes` */
    int refused;    /* times in a row that UCX has refused to sleep */
    size_t unsent;  /* sends that are not done */
    size_t queued;  /* of these, in the peers' `staged` queues */
    packed packed;  /* scratch: the packed message being sent */
};

/* Room for names of network devices. */
enum { DEVICES = 1024 };

/* adapter.c: the devices to use, in the syntax of UCX_NET_DEVICES; "": all; or the
 * adapters to use at once, if there are two at least. All ranks call it together. */
dlc_status adapter_choose(const dlc_transport_args *args, char devices[DEVICES],
                          rail_names rails);

/* rails_open.c: finds, in a list ("tcp/eth0, tcp/eth1"), the adapters that all ranks
 * have alike, up to `most`, and the devices that may reach other machines, if some do
 * not. All ranks call it together. */
dlc_status rails_choose(const dlc_transport_args *args, const char *names, int most,
                        char devices[DEVICES], rail_names rails);
/* Opens endpoints over the adapters behind the first. */
dlc_status rails_open(dlc_endpoint *endpoint, rail_names names);
void rails_close(dlc_endpoint *endpoint);
/* rails.c: the rail for the next chunk to a peer; progress, and arming, of all rails.
 */
dlc_endpoint *rails_idle(dlc_endpoint *endpoint, int32_t to);
int rails_progress(dlc_endpoint *endpoint);
ucs_status_t rails_arm(dlc_endpoint *endpoint);

/* endpoint.c: context_open also serves plugin.c, which lists UCX's transports for the
 * prediction. `adapter`: the only network device to use; "": as settings say. */
dlc_status context_open(const dlc_settings *settings, const char *adapter,
                        int32_t ranks, int32_t local_ranks, ucp_context_h *context);
dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint);
/* Opens an endpoint over one adapter that takes chunks of another endpoint. */
dlc_status endpoint_open_rail(dlc_endpoint *owner, const char *adapter,
                              dlc_endpoint **rail);
void endpoint_close(dlc_endpoint *endpoint);
dlc_status endpoint_describe(dlc_endpoint *endpoint, char *text, size_t text_bytes);
static inline int is_rank(const dlc_endpoint *endpoint, int32_t rank) {
    return (uint32_t)rank < (uint32_t)endpoint->ranks; /* negative ranks wrap around */
}
const char *host_of(const dlc_endpoint *endpoint, int32_t rank);
/* Fails with "there is no rank N". */
dlc_status endpoint_no_rank(const dlc_endpoint *endpoint, int32_t rank);
/* Reports a UCX error about a peer: waits a moment for the job to report the peer as
 * lost, whose message is more precise, before it fails with UCX's. */
dlc_status endpoint_lost(dlc_endpoint *endpoint, int32_t rank, ucs_status_t why);

/* connect.c: connections to all peers, and how they are closed. */
dlc_status connect_all(dlc_endpoint *endpoint);
dlc_status connect_handlers(dlc_endpoint *endpoint);
/* Begins to flush what was sent to a peer: `flushing` is how many of these flushes are
 * not over. */
void connect_flush(dlc_endpoint *endpoint, int32_t peer);
/* While connecting: fails with the peer that has not answered for too long. */
dlc_status connect_check(dlc_endpoint *endpoint);
void connect_close(dlc_endpoint *endpoint);

/* names.c: lists transports ("posix/memory, cma/memory") as UCX prints them.
 * `external_only`: only those that reach other machines. */
void names_of_context(ucp_context_h context, int beyond, char *text, size_t bytes);
void names_of_ep(ucp_ep_h ep, char *text, size_t bytes);

/* wait.c: progress() and waiting */
int chunks_progress(
    dlc_endpoint *endpoint); /* sends queued chunks; returns 1 if anything moved */
/* Returns 1 if anything moved. Errors are kept for check_error. */
static inline int progress(dlc_endpoint *endpoint) {
    int moved = ucx.worker_progress(endpoint->worker) != 0;
    if (endpoint->rail)
        moved |= rails_progress(endpoint);
    return endpoint->queued > 0 ? chunks_progress(endpoint) | moved : moved;
}
dlc_status check_error(dlc_endpoint *endpoint);
/* UCX refuses to sleep, although progress() has moved nothing. */
void wait_refused(dlc_endpoint *endpoint);
/* Blocks until *done. `several`: more requests are awaited after it, so there is no
 * hurry. */
dlc_status wait_for(dlc_endpoint *endpoint, const int *done, int several);

/* wait_any.c: wait_any and wakeup of dlc_transport_ops; wakeup may be called on any
 * thread. */
dlc_status wakeup_open(dlc_endpoint *endpoint);
void wakeup_close(dlc_endpoint *endpoint);
dlc_status wait_any(dlc_endpoint *endpoint, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which);
void wait_wakeup(dlc_endpoint *endpoint);

/* messages.c: requests, and the send and receive calls */
dlc_status request_more(dlc_endpoint *endpoint); /* allocates a free request */
/* Does not set header, `sent` and `broken`. NULL: out of memory. */
static inline dlc_request *request_new(dlc_endpoint *endpoint, int32_t to,
                                       size_t bytes) {
    dlc_request *r = endpoint->free;
    if (!r) {
        if (request_more(endpoint) != DLC_OK)
            return NULL;
        r = endpoint->free;
    }
    endpoint->free = r->next;
    r->bytes = bytes;
    r->moved = 0;
    r->peer = to;
    r->done = 0;
    r->status = DLC_OK;
    r->chunks = 0;
    r->clear_to_send = 0;
    r->listed = 0;
    r->fragments = NULL;
    return r;
}
static inline void request_free(dlc_endpoint *endpoint, dlc_request *request) {
    request->next = endpoint->free;
    endpoint->free = request;
}
void requests_close(dlc_endpoint *endpoint);
static inline void queue_add(queue *to, dlc_request *request) {
    request->next = NULL;
    if (to->last)
        to->last->next = request;
    else
        to->first = request;
    to->last = request;
}
void queue_remove(queue *queue, dlc_request *request);
dlc_request *find_number(const queue *queue, uint32_t number); /* NULL: none */
dlc_status message_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                        const void *buffer, size_t bytes, dlc_request **request);
dlc_status message_recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request);
dlc_status request_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status request_wait(dlc_endpoint *endpoint, dlc_request *request);
/* Parameters of a UCX call that may complete later, by callback. */
ucp_request_param_t how_to_send(const dlc_endpoint *endpoint,
                                ucp_send_nbx_callback_t done, void *context);
/* Parameters of a message or chunk, which is sent eagerly to a peer that only TCP
 * reaches; chunks.c says why. */
ucp_request_param_t how_to_send_to(const dlc_endpoint *endpoint, int32_t peer,
                                   ucp_send_nbx_callback_t done, void *context);

/* IDs of UCX active messages. */
enum { HELLO_ID, MESSAGE_ID, CTS_ID, IDS };
/* Sends a control message: a header without payload. `words` must stay valid until it
 * has left, which is not reported. */
ucs_status_t send_control(const dlc_endpoint *endpoint, int32_t peer, unsigned id,
                          const void *words, size_t bytes);

/* receive.c: the handler of MESSAGE_ID. */
ucs_status_t receive_handler(void *endpoint, const void *head, size_t head_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param);
/* Matches a posted receive to an unexpected message, or queues it. */
dlc_status receive_post(dlc_endpoint *endpoint, dlc_request *receive);
/* UCX tells the sender of fetched bytes that they have been fetched. Where that waits
 * for room in the sender's queue, nothing would send it once the caller goes on to wait
 * for that rank elsewhere. receive_owe notes that it may wait; receive_settle lets it
 * leave, and `blocks` until it has left: the sender makes progress, since it waits for
 * it. */
void receive_owe(dlc_endpoint *endpoint, int32_t peer);
dlc_status receive_settle(dlc_endpoint *endpoint, int blocks);
static inline int is_owing(const dlc_endpoint *endpoint) {
    return endpoint->owing > 0 || endpoint->flushing > 0;
}
/* A FETCHING fragment has been RECEIVED. */
void receive_fetched(fragment *fragment);
/* receive_release is called before UCX closes and releases rendezvous fragments;
 * receive_close frees all fragments afterwards. */
void receive_release(dlc_endpoint *endpoint);
void receive_close(dlc_endpoint *endpoint);

/* chunks.c */
void chunk_give(dlc_endpoint *endpoint, chunk *chunk);
void chunks_close(dlc_endpoint *endpoint);
/* Queues a send; the next progress() sends it. */
void chunks_queue(dlc_endpoint *endpoint, dlc_request *send);
/* Fills and sends chunks as far as the limit of chunks in flight allows. */
dlc_status chunks_push(dlc_endpoint *endpoint, int32_t peer, int *moved);
/* Fetches a rendezvous fragment into a chunk. */
dlc_status chunks_fetch(dlc_endpoint *endpoint, fragment *fragment);

/* rendezvous.c: of a large message over TCP, the rest is sent when a receive was posted
 * for it. */
/* Bytes of a send that may be sent by now. */
size_t rendezvous_limit(const dlc_endpoint *endpoint, const dlc_request *send);
/* Called for each fragment of a receive: sends a clear-to-send if it is the first of a
 * large message. */
void rendezvous_send_cts(dlc_endpoint *endpoint, dlc_request *receive,
                         const header *head);
ucs_status_t rendezvous_on_cts(void *endpoint, const void *head, size_t head_bytes,
                               void *data, size_t bytes,
                               const ucp_am_recv_param_t *param);

#endif
