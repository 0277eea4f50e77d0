/* The transport "tcp": messages between ranks on any machines, over plain TCP sockets.
 *
 * Each pair of ranks has a connection. A message is a header (tag and size) followed by
 * its bytes. An unexpected message, whose receive has not been posted yet, is stored
 * until it is. The core builds collectives from messages in one order of reduction, so
 * the weights are bitwise identical to those of every other transport.
 *
 * A rank that connects must present a random key, which the ranks exchange over the
 * job's own channel. Nothing is encrypted, so use it in trusted networks only. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/transport.h>

enum { SLEEP_MS = 50, HELLO_SECONDS = 2 };
static const dlc_host *host;

/* The address where a rank listens and the key that it expects. A rank that connects
 * sends the key with its own number. */
typedef struct contact {
    uint64_t key;
    in_port_t port;
    int32_t rank;
} contact;

/* The beginning of a message. */
typedef struct header {
    uint64_t tag, bytes;
} header;

struct dlc_request {
    dlc_request *next; /* of all requests of the endpoint, in order */
    int32_t rank;
    int is_send;
    int posted;  /* 0: an unexpected message, whose bytes are behind the struct */
    int started; /* a receive: its message is arriving or has arrived */
    header head;
    char *buffer, *target; /* where bytes arrive, and where they must go */
    size_t moved;          /* bytes of the buffer; of a send: of header and buffer */
};

/* The connection to a rank. */
typedef struct peer {
    int fd;                /* -1: this rank itself, or the peer has closed */
    dlc_request *incoming; /* its bytes are arriving; NULL: a header is next */
    header head;
    size_t head_moved; /* bytes of the header that have arrived */
} peer;

struct dlc_endpoint {
    const dlc_transport_args *args;
    dlc_request *first, **last;
    struct pollfd *polls; /* in the memory after the peers */
    peer peers[];         /* one for each rank */
};

static dlc_status failed(const char *what, int32_t rank) {
    return host->fail(DLC_ERR_PEER, "tcp: %s rank %d: %s", what, rank, strerror(errno));
}

/* ---- Requests --------------------------------------------------------------- */

/* Allocates a request; if `buffer` is NULL, with memory for its bytes behind it. NULL:
 * out of memory. */
static dlc_request *add(dlc_endpoint *e, int32_t rank, header head, void *buffer) {
    dlc_request *r = host->alloc(sizeof *r + (buffer ? 0 : head.bytes));
    if (!r)
        return NULL;
    r->rank = rank;
    r->head = head;
    r->buffer = r->target = buffer ? buffer : (char *)(r + 1);
    *e->last = r;
    e->last = &r->next;
    return r;
}

static void release(dlc_endpoint *e, dlc_request *r) {
    dlc_request **link = &e->first;
    while (*link != r)
        link = &(*link)->next;
    if (!(*link = r->next))
        e->last = link;
    host->free(r);
}

static int is_done(const dlc_request *r) {
    return r->is_send ? r->moved == sizeof r->head + r->head.bytes
                      : r->started && r->moved == r->head.bytes;
}

static dlc_status check_size(const dlc_request *r, uint64_t bytes) {
    return r->head.bytes == bytes
               ? DLC_OK
               : host->fail(DLC_ERR_CONFIG,
                            "tcp: rank %d sent a message of an unexpected size",
                            r->rank);
}

/* ---- Messages --------------------------------------------------------------- */

/* Sends as much of the messages to this rank as its socket takes. */
static dlc_status push(dlc_endpoint *e, int32_t rank) {
    for (dlc_request *r = e->first; r; r = r->next)
        while (r->is_send && r->rank == rank && !is_done(r)) {
            size_t head = r->moved < sizeof r->head ? sizeof r->head - r->moved : 0;
            size_t at = r->moved + head - sizeof r->head;
            struct iovec parts[] = {{(char *)(&r->head + 1) - head, head},
                                    {r->buffer + at, r->head.bytes - at}};
            struct msghdr both = {.msg_iov = parts, .msg_iovlen = 2};
            ssize_t put = sendmsg(e->peers[rank].fd, &both,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put < 0)
                return errno == EAGAIN ? DLC_OK : failed("sending to", rank);
            r->moved += (size_t)put;
        }
    return DLC_OK;
}

/* Finds the first posted receive for the header that has arrived; if there is none, the
 * message is unexpected. */
static dlc_status begin(dlc_endpoint *e, peer *p, int32_t rank) {
    dlc_request *r = e->first;
    while (r &&
           (r->is_send || r->rank != rank || r->started || r->head.tag != p->head.tag))
        r = r->next;
    if (!r && !(r = add(e, rank, p->head, NULL)))
        return DLC_ERR_NOMEM;
    r->started = 1;
    p->head_moved = 0;
    p->incoming = is_done(r) ? NULL : r;
    return check_size(r, p->head.bytes);
}

/* Receives everything that this rank has sent so far. */
static dlc_status pull(dlc_endpoint *e, int32_t rank) {
    peer *p = &e->peers[rank];
    for (;;) {
        dlc_request *r = p->incoming;
        size_t *moved = r ? &r->moved : &p->head_moved;
        size_t all = r ? r->head.bytes : sizeof p->head;
        char *at = (r ? r->buffer : (char *)&p->head) + *moved;
        ssize_t got = recv(p->fd, at, all - *moved, MSG_DONTWAIT);
        if (got < 0)
            return errno == EAGAIN ? DLC_OK : failed("receiving from", rank);
        if (got == 0) { /* the peer has closed; an error only if more is needed */
            close(p->fd);
            p->fd = -1;
            return DLC_OK;
        }
        *moved += (size_t)got;
        if (*moved < all)
            continue;
        p->incoming = NULL;
        dlc_status rc = r ? DLC_OK : begin(e, p, rank);
        if (rc != DLC_OK)
            return rc;
    }
}

static dlc_status tcp_send(dlc_endpoint *e, int32_t rank, dlc_tag tag,
                           const void *buffer, size_t bytes, dlc_request **request) {
    void *only_read = (void *)(uintptr_t)buffer;
    dlc_request *r = add(e, rank, (header){tag, bytes}, only_read);
    if (!r)
        return DLC_ERR_NOMEM;
    r->is_send = r->posted = 1;
    *request = r;
    return DLC_OK;
}

static dlc_status tcp_recv(dlc_endpoint *e, int32_t rank, dlc_tag tag, void *buffer,
                           size_t bytes, dlc_request **request) {
    dlc_request *r = e->first;
    while (r && (r->posted || r->rank != rank || r->head.tag != tag))
        r = r->next;
    if (!r && !(r = add(e, rank, (header){tag, bytes}, buffer)))
        return DLC_ERR_NOMEM;
    r->target = buffer;
    r->posted = 1;
    *request = r;
    return check_size(r, bytes);
}

static dlc_status tcp_test(dlc_endpoint *e, dlc_request *r, int *done) {
    dlc_status rc = DLC_OK;
    for (int32_t i = 0; rc == DLC_OK && !is_done(r) && i < e->args->ranks; i++)
        if (e->peers[i].fd >= 0 && (rc = push(e, i)) == DLC_OK)
            rc = pull(e, i);
    if (rc == DLC_OK && !is_done(r) && e->peers[r->rank].fd < 0)
        rc = host->fail(DLC_ERR_PEER, "tcp: rank %d has closed its connection",
                        r->rank);
    *done = rc == DLC_OK && is_done(r);
    if (!*done)
        return rc;
    if (r->target != r->buffer && r->head.bytes > 0)
        memcpy(r->target, r->buffer, r->head.bytes);
    release(e, r);
    return DLC_OK;
}

static dlc_status tcp_wait(dlc_endpoint *e, dlc_request *r) {
    for (int done = 0;;) {
        dlc_status rc = tcp_test(e, r, &done);
        if (rc != DLC_OK || done || (rc = e->args->check(e->args->job)) != DLC_OK)
            return rc;
        for (int32_t i = 0; i < e->args->ranks; i++)
            e->polls[i] = (struct pollfd){.fd = e->peers[i].fd, .events = POLLIN};
        for (const dlc_request *s = e->first; s; s = s->next)
            if (s->is_send && !is_done(s))
                e->polls[s->rank].events = POLLIN | POLLOUT;
        (void)poll(e->polls, (nfds_t)e->args->ranks, SLEEP_MS);
    }
}

/* ---- Opening ---------------------------------------------------------------- */

static void tcp_close(dlc_endpoint *e) {
    for (int32_t i = 0; e && i < e->args->ranks; i++)
        if (e->peers[i].fd >= 0)
            close(e->peers[i].fd);
    while (e && e->first)
        release(e, e->first);
    host->free(e);
}

/* Connects to a rank below this one, by the host name of its machine. */
static dlc_status connect_to(dlc_endpoint *e, int32_t rank, const char *machine,
                             contact there) {
    struct addrinfo hints = {.ai_family = AF_INET}, *found = NULL;
    int on = 1, wrong = getaddrinfo(machine, NULL, &hints, &found);
    if (wrong)
        return host->fail(DLC_ERR_CONFIG,
                          "tcp: cannot find the machine %s of rank %d: %s", machine,
                          rank, gai_strerror(wrong));
    struct sockaddr_in address = *(struct sockaddr_in *)(void *)found->ai_addr;
    freeaddrinfo(found);
    address.sin_port = there.port;
    there.rank = e->args->rank;
    int fd = e->peers[rank].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        send(fd, &there, sizeof there, MSG_NOSIGNAL) != sizeof there)
        return failed("connecting to", rank);
    return DLC_OK;
}

/* Accepts a connection from a rank above this one, if there is one. The caller must
 * know the key. */
static dlc_status accept_one(dlc_endpoint *e, int listener, const contact *mine,
                             int *left) {
    struct pollfd incoming = {.fd = listener, .events = POLLIN};
    const struct timeval timeout = {.tv_sec = HELLO_SECONDS};
    contact caller = {.rank = -1};
    if (poll(&incoming, 1, SLEEP_MS) <= 0)
        return e->args->check(e->args->job);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (fd >= 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
        recv(fd, &caller, sizeof caller, MSG_WAITALL) == sizeof caller &&
        caller.key == mine->key && caller.rank > e->args->rank &&
        caller.rank < e->args->ranks && e->peers[caller.rank].fd < 0) {
        e->peers[caller.rank].fd = fd;
        --*left;
    } else if (fd >= 0) {
        close(fd);
    }
    return DLC_OK;
}

static dlc_status connect_all(dlc_endpoint *e, int listener, contact *contacts) {
    const dlc_transport_args *args = e->args;
    const dlc_rank_info *info = args->rank_info, *own = info;
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t length = sizeof any;
    contact mine = {.rank = args->rank};
    int left = args->ranks - 1 - args->rank;
    if (listener < 0 || bind(listener, (struct sockaddr *)&any, length) != 0 ||
        listen(listener, args->ranks) != 0 ||
        getsockname(listener, (struct sockaddr *)&any, &length) != 0 ||
        getentropy(&mine.key, sizeof mine.key) != 0)
        return failed("listening as", args->rank);
    mine.port = any.sin_port;
    for (int32_t i = 0; i < args->rank; i++)
        own = DLC_NEXT(own);
    dlc_status rc = args->oob_all_gather(args->job, &mine, sizeof mine, contacts);
    for (int32_t i = 0; rc == DLC_OK && i < args->rank; i++, info = DLC_NEXT(info))
        rc = connect_to(e, i, info->node == own->node ? "127.0.0.1" : info->host,
                        contacts[i]);
    while (rc == DLC_OK && left > 0)
        rc = accept_one(e, listener, &mine, &left);
    return rc;
}

static dlc_status tcp_open(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    size_t ranks = (size_t)args->ranks, each = sizeof(peer) + sizeof(struct pollfd);
    dlc_endpoint *e = host->alloc(sizeof *e + ranks * each);
    if (!e)
        return DLC_ERR_NOMEM;
    e->args = args;
    e->last = &e->first;
    e->polls = (struct pollfd *)(e->peers + ranks);
    for (size_t i = 0; i < ranks; i++)
        e->peers[i].fd = -1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    contact *contacts = host->alloc(ranks * sizeof *contacts);
    dlc_status rc = contacts ? connect_all(e, listener, contacts) : DLC_ERR_NOMEM;
    host->free(contacts);
    if (listener >= 0)
        close(listener);
    if (rc == DLC_OK)
        *endpoint = e;
    else
        tcp_close(e);
    return rc;
}

static dlc_status tcp_predict(const dlc_transport_args *args,
                              dlc_transport_prediction *prediction, char *reason,
                              size_t bytes) {
    int can = !DLC_CAN(args->device_ops, queues);
    if (can)
        *prediction = dlc_predict(args, 50e-6, 0.1, 0.2);
    (void)snprintf(reason, bytes, "%s",
                   can ? "TCP sockets" : "it cannot send the memory of this device");
    return DLC_OK;
}

/* ---- The plugin ------------------------------------------------------------- */

static dlc_status tcp_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_transport_ops ops = {
    .size = sizeof ops,
    .predict = tcp_predict,
    .open = tcp_open,
    .close = tcp_close,
    .send = tcp_send,
    .recv = tcp_recv,
    .test = tcp_test,
    .wait = tcp_wait,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "tcp",
     .help = "messages over plain TCP sockets",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("tcp", PLUGIN_VERSION, "BSD-2-Clause", features, tcp_load);
