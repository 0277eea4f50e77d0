/* What the files of the UCX transport share.
 *
 * Messages go as UCX's active messages. Each carries a header of ours with the whole
 * 64-bit tag, its number between the two ranks, and its size, so that tags are matched
 * exactly, in order, and sizes are compared: by us, in arrivals.c. UCX brings the
 * bytes: small ones with the header, large ones (its rendezvous) straight to where they
 * belong as soon as that is known.
 *
 * Where the device's memory is neither the processor's nor known to UCX, or that is so
 * for any rank of the group, messages go in chunks through host memory; they also go in
 * chunks, straight out of their own, where TCP is all that leads to a peer (chunks.c,
 * offers.c).
 *
 * Deaths. The UCX endpoints have no error handling of UCX's own: with it, it does
 * without shared memory, and it would still miss a hung peer. The job's control channel
 * decides who is gone; every wait asks it.
 */
#ifndef DLC_UCX_H
#define DLC_UCX_H

#include <pthread.h>

#include <dlcore/transport.h>

#include "library.h"

extern const dlc_host *host;

/* Before the bytes of each message, or of each piece of one. Whole ones do without what
 * UCX says anyway: header and a word then fit into one line of the cache. */
typedef struct header {
    dlc_tag tag;
    uint32_t number; /* of the message, from this rank to that */
    int32_t from;
    uint64_t bytes;  /* of the whole message */
    uint64_t offset; /* of this piece in it */
} header;

#define WHOLE_HEADER offsetof(header, bytes)

/* A whole message that is so short that it leaves with its header. */
enum { PACKED = 256 };
typedef struct packed {
    dlc_tag tag;
    uint32_t number;
    int32_t from;
    unsigned char bytes[PACKED];
} packed;

_Static_assert(offsetof(packed, bytes) == WHOLE_HEADER, "begins with a header");

/* A piece of a message that cannot go to its place yet. */
typedef struct piece {
    struct piece *next; /* in its list, or of the free ones */
    struct piece *made; /* all there are, for close */
    header header;
    size_t bytes;
    enum {
        UNUSED,
        OFFERED, /* UCX knows where it is: `data` is for am_recv_data_nbx */
        COMING,  /* on its way to `chunk` */
        HERE,    /* at `data`, in `chunk` or in memory of its own */
    } state;
    void *data;
    struct chunk *chunk;
    dlc_endpoint *endpoint;
    dlc_request *taker; /* of a COMING one: who wants it; NULL: nobody yet */
} piece;

/* What is written for every message comes first: it fits into a line of the cache. */
struct dlc_request {
    dlc_request *next; /* in its queue, or of the free ones */
    dlc_endpoint *endpoint;
    size_t bytes, moved;
    union {
        const unsigned char *source;
        unsigned char *target;
    };
    int32_t peer;
    enum { SEND, RECEIVE, UNEXPECTED, ACCESS } kind;
    int done;
    dlc_status status; /* DLC_ERR_CONFIG: the sizes don't agree, see `sent` */
    int chunks;        /* of a send, under way */
    int wanted;        /* all of it, that is known */
    int listed;        /* in its peer's `begun` */

    header header;
    piece *pieces;       /* of a message that nobody has asked for yet, in any order */
    dlc_request *made;   /* all there are, for close */
    size_t sent;         /* bytes, where others are expected */
    ucs_status_t broken; /* UCX's, where status is DLC_ERR_PEER */
};

typedef struct queue {
    dlc_request *first, *last;
} queue;

typedef struct peer {
    ucp_ep_h ep;
    uint32_t sent;    /* messages to it */
    uint32_t matched; /* messages from it that have found their request */
    queue receives;   /* asked for, not begun */
    queue unexpected; /* begun, not asked for */
    piece *early;     /* of messages that came before an earlier one */
    queue begun;      /* asked for, of several pieces, and begun */
    const ucp_address_t *address;
    queue staged;  /* sends that chunks are made of */
    queue offered; /* sends whose rest it has not asked for yet */
    int chunks;    /* on their way to it */
    int stream;    /* TCP leads to it, nothing else */
} peer;

/* chunks.c: a piece of a message, under way. */
typedef struct chunk {
    struct chunk *next; /* of the free ones */
    struct chunk *made; /* all there are */
    dlc_memory memory; /* host memory that it goes through, where the endpoint stages */
    header header;
    dlc_endpoint *endpoint;
    int32_t peer;
    dlc_request *request; /* that it was filled from */
} chunk;

enum { GREETINGS = 2 }; /* before the group is open */
/* Of a message over TCP: what UCX hands over in one piece, without putting it together
 * in memory of its own first. */
enum { STREAM_CHUNK = 60 << 10 };

/* A thread that waits here: the exchange's, or the one that has nothing to compute
 * until the exchange is through. wait.c has what is made of it. */
typedef struct watcher {
    pthread_t thread;
    int known;
    uint64_t patience; /* how long it looks before it sleeps */
    int spare;         /* a core had nothing else to do ... */
    uint64_t judged;   /* ... when it was last asked, and how long the process's ... */
    uint64_t others;   /* ... other threads had computed by then */
} watcher;

enum { WATCHERS = 2 };

struct dlc_endpoint {
    const dlc_transport_args *args;
    int32_t rank, ranks;
    peer *peers;
    int at_once; /* messages go from their memory, and to it, as the processor does it
                  */
    int closing;
    unsigned char *addresses; /* of all workers */
    ucp_context_h context;
    ucp_worker_h worker;
    int wake_fd;
    int nudge_fd;     /* any.c: an eventfd */
    int32_t turn;     /* of several requests that are waited for, who comes first */
    uint64_t spin_ns; /* how long to look before sleeping, at least ... */
    watcher watchers[WATCHERS]; /* ... and as their waits of late have been */
    int cores;                  /* of this node, for each of its ranks */
    int streams;                /* there are peers that only TCP leads to */
    int near;                   /* the processor reads this device's memory */
    int staged;                 /* all messages go in chunks */
    size_t chunk_bytes;         /* the same on all ranks */
    dlc_status failed;          /* in a callback, where it could not be returned */
    ucs_status_t broken;        /* likewise: the way to ... */
    int32_t broken_peer;
    int32_t greeted[GREETINGS]; /* ranks that have greeted us */
    int met[GREETINGS];         /* ... all of them */
    int flushing;               /* ways that are not through yet */
    int flushed;
    int connected; /* to all */
    dlc_request *made, *free;
    dlc_request gone; /* of all sends that have left at once */
    piece *pieces, *free_pieces;
    chunk *chunks, *free_chunks;
    size_t fetches; /* that UCX has begun */
    size_t unsent;  /* sends that are not done */
    size_t queued;  /* of them, in the peers' queues `staged` */
    packed packed;  /* what is sent now */
};

struct dlc_region {
    ucp_mem_h memory; /* mine, or ... */
    ucp_rkey_h key;   /* ... a peer's: */
    int32_t peer;
    uint64_t base;
    size_t bytes;
};

/* endpoint.c */
dlc_status context_open(const dlc_settings *settings, int32_t ranks, int32_t near_ranks,
                        ucp_context_h *context);
dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint);
void endpoint_close(dlc_endpoint *endpoint);
dlc_status endpoint_describe(dlc_endpoint *endpoint, char *text, size_t text_bytes);
static inline int is_rank(const dlc_endpoint *endpoint, int32_t rank) {
    return (uint32_t)rank < (uint32_t)endpoint->ranks; /* below 0: above all */
}
/* Fails: there is no such rank. */
dlc_status endpoint_stranger(const dlc_endpoint *endpoint, int32_t rank);
/* Something that has to do with a peer went wrong: if it is dead, the job will know in
 * a moment, and better than UCX does. */
dlc_status endpoint_lost(dlc_endpoint *endpoint, int32_t rank, ucs_status_t why);

/* connect.c: ways to all peers, and what close does about them. */
dlc_status connect_all(dlc_endpoint *endpoint);
dlc_status connect_handlers(dlc_endpoint *endpoint);
void connect_close(dlc_endpoint *endpoint);

/* names.c: "posix/memory, cma/memory", out of what UCX prints. `beyond`: only those
 * that lead out of the machine. */
void names_of_context(ucp_context_h context, int beyond, char *text, size_t bytes);
void names_of_ep(ucp_ep_h ep, char *text, size_t bytes);

/* wait.c */
int chunks_move_on(dlc_endpoint *endpoint); /* what is queued; something has */
/* Something has. What goes wrong on the way is found by the next. */
static inline int move_on(dlc_endpoint *endpoint) {
    int moved = ucx.worker_progress(endpoint->worker) != 0;
    return endpoint->queued > 0 ? chunks_move_on(endpoint) | moved : moved;
}
dlc_status trouble(dlc_endpoint *endpoint);
/* `several`: others are awaited behind it, so this one need not be seen at once. */
dlc_status wait_for(dlc_endpoint *endpoint, const int *done, int several);

/* any.c: the operations of these names; any thread may nudge. */
dlc_status any_open(dlc_endpoint *endpoint);
void any_close(dlc_endpoint *endpoint);
dlc_status wait_any(dlc_endpoint *endpoint, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which);
void nudge(dlc_endpoint *endpoint);

/* messages.c */
dlc_status request_more(dlc_endpoint *endpoint); /* free ones */
/* Header, `sent` and `broken` are for whom it is for to write. NULL: no memory. */
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
    r->wanted = 0;
    r->listed = 0;
    r->pieces = NULL;
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
dlc_request *of_number(const queue *queue, uint32_t number); /* NULL: none */
dlc_status message_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                        const void *buffer, size_t bytes, dlc_request **request);
dlc_status message_recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request);
dlc_status request_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status request_wait(dlc_endpoint *endpoint, dlc_request *request);
/* What every call of UCX that may go on behind our back is given. */
ucp_request_param_t how_to_send(const dlc_endpoint *endpoint,
                                ucp_send_nbx_callback_t done, void *context);
/* The same of a message, or a chunk of one, which leaves unasked where it goes over TCP
 * out of its own memory: why is in chunks.c. */
ucp_request_param_t how_to_send_to(const dlc_endpoint *endpoint, int32_t peer,
                                   ucp_send_nbx_callback_t done, void *context);

/* What UCX's active messages are for. */
enum { GREETING_ID, MESSAGE_ID, ANSWER_ID, IDS };
/* A header and nothing behind it; it must stay where it is until it has left, which
 * nobody is told. */
ucs_status_t send_word(const dlc_endpoint *endpoint, int32_t peer, unsigned id,
                       const void *words, size_t bytes);

/* arrivals.c */
ucs_status_t arrival(void *endpoint, const void *head, size_t head_bytes, void *data,
                     size_t bytes, const ucp_am_recv_param_t *param);
/* A receive is posted: what has come for it already is its, if anything has. */
dlc_status arrivals_claim(dlc_endpoint *endpoint, dlc_request *receive);
/* A piece that was COMING is HERE. */
void arrival_landed(piece *piece);
/* Before UCX ends: what it has offered is not wanted. After: frees it all. */
void arrivals_decline(dlc_endpoint *endpoint);
void arrivals_close(dlc_endpoint *endpoint);

/* chunks.c */
chunk *chunk_take(dlc_endpoint *endpoint);
void chunk_give(dlc_endpoint *endpoint, chunk *chunk);
void chunks_close(dlc_endpoint *endpoint);
/* The next move_on sends it. */
void chunks_queue(dlc_endpoint *endpoint, dlc_request *send);
/* Fills and sends what there is room for. */
dlc_status chunks_push(dlc_endpoint *endpoint, int32_t peer, int *moved);
/* Brings an offered piece into a chunk. */
dlc_status chunks_fetch(dlc_endpoint *endpoint, piece *piece);

/* offers.c: of a large message over TCP, the rest leaves when it is asked for. */
/* Bytes of a send that may leave by now. */
size_t offer_limit(const dlc_endpoint *endpoint, const dlc_request *send);
/* A piece of a message has come for a receive: asks for the rest, if it is the first.
 */
void offer_accept(dlc_endpoint *endpoint, dlc_request *receive, const header *head);
ucs_status_t offer_answered(void *endpoint, const void *head, size_t head_bytes,
                            void *data, size_t bytes, const ucp_am_recv_param_t *param);

/* regions.c */
dlc_status region_open(dlc_endpoint *endpoint, void *base, size_t bytes,
                       dlc_region **region, void *remote, size_t *remote_bytes);
void region_close(dlc_endpoint *endpoint, dlc_region *region);
dlc_status region_import(dlc_endpoint *endpoint, int32_t peer, const void *remote,
                         size_t remote_bytes, dlc_region **region);
dlc_status region_put(dlc_endpoint *endpoint, const void *local, dlc_region *remote,
                      size_t offset, size_t bytes, dlc_request **request);
dlc_status region_get(dlc_endpoint *endpoint, void *local, dlc_region *remote,
                      size_t offset, size_t bytes, dlc_request **request);

#endif
