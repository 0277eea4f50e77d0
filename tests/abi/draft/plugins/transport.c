/* The transport "draft-transport": messages between the ranks of one machine, over Unix
 * sockets.
 *
 * Each pair of ranks has a SOCK_SEQPACKET socket, whose packets arrive whole and in
 * order. A message is one or more packets, and the next message begins after its
 * last packet. Each packet begins with the tag and size of its message. A message
 * that arrives before its receive was posted is kept until then.
 *
 * Nothing else is required of a transport: the core builds collectives from
 * messages, in one order of reduction, so that weights are bitwise identical on all
 * transports. */
#include <dlcore/transport.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const dlc_host *host;

enum { PACKET = 64 << 10, SLEEP_MS = 50 };

/* The beginning of each packet. */
typedef struct header {
    uint64_t tag, bytes;
} header;

/* A send, a receive, or an unexpected message: one that arrived before its receive was
 * posted. The bytes of an unexpected message are behind the struct. */
struct dlc_request {
    dlc_request *next;
    int32_t peer;
    dlc_tag tag;
    char *buffer;
    size_t bytes, moved;
    int is_send, started, done;
};

/* What the endpoint has for each rank. */
typedef struct peer {
    int fd; /* -1: this rank itself, or the other end has closed */
    dlc_request *sends, *recvs, *unexpected; /* in order, until they are released */
    dlc_request *incoming; /* the one whose packets are arriving, or NULL */
} peer;

struct dlc_endpoint {
    const dlc_transport_args *args;
    struct pollfd *polls;
    peer peers[]; /* one for each rank */
};

/* ---- Prediction ------------------------------------------------------------- */

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t room) {
    const dlc_rank_info *first = args->rank_info, *info = first;
    if (DLC_CAN(args->device_ops, queues)) {
        (void)snprintf(reason, room, "it cannot send the memory of this device");
        return DLC_OK;
    }
    for (int32_t r = 0; r < args->ranks; r++, info = DLC_NEXT(info)) {
        if (info->node != first->node || info->uid != first->uid) {
            (void)snprintf(reason, room,
                           "rank %d is on another node or of another user", r);
            return DLC_OK;
        }
    }
    *prediction = dlc_predict(args, 10e-6, 0.1, 0.1);
    (void)snprintf(reason, room, "Unix sockets, %d ranks on one node", args->ranks);
    return DLC_OK;
}

/* ---- Requests --------------------------------------------------------------- */

static void append(dlc_request **list, dlc_request *r) {
    while (*list)
        list = &(*list)->next;
    *list = r;
}

static void take_out(dlc_request **list, const dlc_request *r) {
    while (*list != r)
        list = &(*list)->next;
    *list = r->next;
}

static void free_list(dlc_request *list) {
    while (list) {
        dlc_request *next = list->next;
        host->free(list);
        list = next;
    }
}

static dlc_status fail_io(int32_t rank, const char *what) {
    return host->fail(DLC_ERR_PEER, "the connection to rank %d failed while %s: %s",
                      rank, what, strerror(errno));
}

/* Allocates a request with `own` bytes behind it. NULL: out of memory, and the detail
 * sentence is set. */
static dlc_request *make_request(int32_t rank, dlc_tag tag, size_t bytes, size_t own) {
    dlc_request *r = host->alloc(sizeof *r + own);
    if (!r)
        return NULL;
    r->peer = rank;
    r->tag = tag;
    r->bytes = bytes;
    return r;
}

/* ---- Packets ---------------------------------------------------------------- */

/* Sends one packet of the message. *moved is 0 if the socket is full. */
static dlc_status send_packet(const peer *p, dlc_request *r, int *moved) {
    header head = {r->tag, r->bytes};
    size_t rest = r->bytes - r->moved, n = rest < PACKET ? rest : PACKET;
    struct iovec parts[] = {{&head, sizeof head}, {r->buffer + r->moved, n}};
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = 2};
    *moved = sendmsg(p->fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    if (!*moved)
        return errno == EAGAIN || errno == EINTR ? DLC_OK : fail_io(r->peer, "sending");
    r->moved += n;
    r->done = r->moved == r->bytes;
    return DLC_OK;
}

/* Sends as many packets as the socket takes. */
static dlc_status push(const peer *p) {
    for (dlc_request *r = p->sends; r; r = r->next)
        for (int moved = 1; !r->done;) {
            dlc_status rc = send_packet(p, r, &moved);
            if (rc != DLC_OK || !moved)
                return rc;
        }
    return DLC_OK;
}

/* Finds the first posted receive for a message that begins to arrive; if there is none,
 * the message is unexpected. */
static dlc_status begin(peer *p, int32_t rank, const header *head) {
    dlc_request *r = p->recvs;
    while (r && (r->started || r->tag != head->tag))
        r = r->next;
    if (!r) {
        if (!(r = make_request(rank, head->tag, head->bytes, head->bytes)))
            return DLC_ERR_NOMEM;
        r->buffer = (char *)(r + 1);
        append(&p->unexpected, r);
    }
    r->started = 1;
    p->incoming = r;
    return r->bytes == head->bytes
               ? DLC_OK
               : host->fail(DLC_ERR_CONFIG,
                            "rank %d sent %llu bytes, but %zu were expected", rank,
                            (unsigned long long)head->bytes, r->bytes);
}

/* Receives all packets that have arrived. */
static dlc_status pull(dlc_endpoint *e, int32_t rank) {
    peer *p = &e->peers[rank];
    header head;
    for (;;) {
        ssize_t got = recv(p->fd, &head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
        if (got < 0)
            return errno == EAGAIN || errno == EINTR ? DLC_OK
                                                     : fail_io(rank, "receiving");
        if (got == 0) { /* the peer has closed; an error only if more is expected */
            close(p->fd);
            p->fd = -1;
            return DLC_OK;
        }
        dlc_status rc = p->incoming ? DLC_OK : begin(p, rank, &head);
        if (rc != DLC_OK)
            return rc;
        dlc_request *r = p->incoming;
        struct iovec parts[] = {{&head, sizeof head},
                                {r->buffer + r->moved, r->bytes - r->moved}};
        struct msghdr packet = {.msg_iov = parts, .msg_iovlen = 2};
        if ((got = recvmsg(p->fd, &packet, MSG_DONTWAIT)) < (ssize_t)sizeof head)
            return fail_io(rank, "receiving");
        r->moved += (size_t)got - sizeof head;
        r->done = r->moved == r->bytes;
        if (r->done)
            p->incoming = NULL;
    }
}

/* Makes progress on all connections. */
static dlc_status progress(dlc_endpoint *e) {
    dlc_status rc = DLC_OK;
    for (int32_t r = 0; rc == DLC_OK && r < e->args->ranks; r++) {
        if (e->peers[r].fd >= 0)
            rc = push(&e->peers[r]);
        if (rc == DLC_OK && e->peers[r].fd >= 0)
            rc = pull(e, r);
    }
    return rc;
}

/* Sleeps until a socket is ready, but at most SLEEP_MS. */
static void sleep_until_ready(dlc_endpoint *e) {
    for (int32_t r = 0; r < e->args->ranks; r++) {
        e->polls[r] = (struct pollfd){.fd = e->peers[r].fd, .events = POLLIN};
        for (const dlc_request *s = e->peers[r].sends; s; s = s->next)
            if (!s->done)
                e->polls[r].events = POLLIN | POLLOUT;
    }
    (void)poll(e->polls, (nfds_t)e->args->ranks, SLEEP_MS);
}

/* ---- Messages --------------------------------------------------------------- */

static dlc_status transport_send(dlc_endpoint *e, int32_t rank, dlc_tag tag,
                                 const void *buffer, size_t bytes,
                                 dlc_request **request) {
    dlc_request *r = make_request(rank, tag, bytes, 0);
    if (!r)
        return DLC_ERR_NOMEM;
    r->buffer = (char *)(uintptr_t)buffer; /* it is only read */
    r->is_send = 1;
    append(&e->peers[rank].sends, r);
    *request = r;
    return DLC_OK;
}

static dlc_status transport_recv(dlc_endpoint *e, int32_t rank, dlc_tag tag,
                                 void *buffer, size_t bytes, dlc_request **request) {
    dlc_request *r = make_request(rank, tag, bytes, 0);
    if (!r)
        return DLC_ERR_NOMEM;
    peer *p = &e->peers[rank];
    dlc_request *arrived = p->unexpected;
    while (arrived && arrived->tag != tag)
        arrived = arrived->next;
    r->buffer = buffer;
    append(&p->recvs, r);
    *request = r;
    if (!arrived)
        return DLC_OK;
    if (arrived->bytes != bytes)
        return host->fail(DLC_ERR_CONFIG,
                          "rank %d sent %zu bytes, but %zu were expected", rank,
                          arrived->bytes, bytes);
    if (arrived->moved)
        memcpy(buffer, arrived->buffer, arrived->moved);
    r->started = 1;
    r->moved = arrived->moved;
    r->done = arrived->done;
    if (p->incoming == arrived)
        p->incoming = r;
    take_out(&p->unexpected, arrived);
    host->free(arrived);
    return DLC_OK;
}

static dlc_status transport_test(dlc_endpoint *e, dlc_request *r, int *done) {
    peer *p = &e->peers[r->peer];
    dlc_status rc = r->done ? DLC_OK : progress(e);
    if (rc == DLC_OK && !r->done && p->fd < 0)
        return host->fail(DLC_ERR_PEER, "rank %d has closed its connection", r->peer);
    *done = rc == DLC_OK && r->done;
    if (*done) {
        take_out(r->is_send ? &p->sends : &p->recvs, r);
        host->free(r);
    }
    return rc;
}

static dlc_status transport_wait(dlc_endpoint *e, dlc_request *r) {
    for (int done = 0;;) {
        dlc_status rc = transport_test(e, r, &done);
        if (rc == DLC_OK && !done)
            rc = e->args->check(e->args->job);
        if (rc != DLC_OK || done)
            return rc;
        sleep_until_ready(e);
    }
}

/* ---- Open and close --------------------------------------------------------- */

static void transport_close(dlc_endpoint *e) {
    if (!e)
        return;
    for (int32_t r = 0; r < e->args->ranks; r++) {
        if (e->peers[r].fd >= 0)
            close(e->peers[r].fd);
        free_list(e->peers[r].sends);
        free_list(e->peers[r].recvs);
        free_list(e->peers[r].unexpected);
    }
    host->free(e->polls);
    host->free(e);
}

static dlc_status fail_open(const char *what) {
    return host->fail(DLC_ERR_IO, "draft-transport: %s: %s", what, strerror(errno));
}

/* Waits until the socket is readable or the job ends. */
static dlc_status wait_readable(const dlc_transport_args *args, int fd) {
    struct pollfd socket_poll = {.fd = fd, .events = POLLIN};
    while (poll(&socket_poll, 1, SLEEP_MS) <= 0) {
        dlc_status rc = args->check(args->job);
        if (rc != DLC_OK)
            return rc;
    }
    return DLC_OK;
}

/* Accepts a connection from a rank above this one, which sends its number first. Other
 * users of this machine can see the socket too, so only processes of this user are
 * accepted. */
static dlc_status accept_one(dlc_endpoint *e, int listener, int *accepted) {
    const dlc_transport_args *args = e->args;
    struct ucred process = {0};
    socklen_t length = sizeof process;
    int32_t rank = -1;
    dlc_status rc = wait_readable(args, listener);
    if (rc != DLC_OK)
        return rc;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return fail_open("accepting a connection");
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &length) == 0 &&
        process.uid == geteuid() && (rc = wait_readable(args, fd)) == DLC_OK &&
        recv(fd, &rank, sizeof rank, 0) == sizeof rank && rank > args->rank &&
        rank < args->ranks && e->peers[rank].fd < 0) {
        e->peers[rank].fd = fd;
        ++*accepted;
        return DLC_OK;
    }
    close(fd);
    return rc;
}

/* Connects to a rank below this one, which is already listening. */
static dlc_status connect_to(dlc_endpoint *e, int32_t rank,
                             const struct sockaddr_un *address) {
    socklen_t length = (socklen_t)(sizeof address->sun_family + 6);
    peer *p = &e->peers[rank];
    p->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (p->fd < 0 || connect(p->fd, (const struct sockaddr *)address, length) != 0 ||
        send(p->fd, &e->args->rank, sizeof e->args->rank, MSG_NOSIGNAL) < 0)
        return fail_open("connecting");
    return DLC_OK;
}

/* Connects all ranks. Each rank listens at an abstract address that the kernel chooses
 * (a zero and five digits), distributes the address, connects to the ranks below it,
 * and accepts connections from the ranks above it. */
static dlc_status connect_all(dlc_endpoint *e, int listener,
                              struct sockaddr_un *addresses) {
    const dlc_transport_args *args = e->args;
    struct sockaddr_un mine = {.sun_family = AF_UNIX};
    socklen_t length = sizeof mine;
    if (listener < 0 ||
        bind(listener, (const struct sockaddr *)&mine, sizeof mine.sun_family) != 0 ||
        getsockname(listener, (struct sockaddr *)&mine, &length) != 0 ||
        listen(listener, args->ranks) != 0)
        return fail_open("listening");
    dlc_status rc = args->oob_all_gather(args->job, &mine, sizeof mine, addresses);
    for (int32_t r = 0; rc == DLC_OK && r < args->rank; r++)
        rc = connect_to(e, r, &addresses[r]);
    for (int accepted = args->rank + 1; rc == DLC_OK && accepted < args->ranks;)
        rc = accept_one(e, listener, &accepted);
    return rc;
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    size_t ranks = (size_t)args->ranks;
    dlc_status rc = DLC_ERR_NOMEM;
    int listener = -1;
    dlc_endpoint *e = host->alloc(sizeof *e + ranks * sizeof *e->peers);
    if (!e)
        return rc;
    e->args = args;
    for (size_t r = 0; r < ranks; r++)
        e->peers[r].fd = -1;
    e->polls = host->alloc(ranks * sizeof *e->polls);
    struct sockaddr_un *addresses = host->alloc(ranks * sizeof *addresses);
    if (e->polls && addresses) {
        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        rc = connect_all(e, listener, addresses);
    }
    if (listener >= 0)
        close(listener);
    host->free(addresses);
    if (rc == DLC_OK)
        *endpoint = e;
    else
        transport_close(e);
    return rc;
}

/* ---- The plugin ------------------------------------------------------------- */

static dlc_status transport_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_transport_ops ops = {
    .size = sizeof ops,
    .predict = transport_predict,
    .open = transport_open,
    .close = transport_close,
    .send = transport_send,
    .recv = transport_recv,
    .test = transport_test,
    .wait = transport_wait,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "draft-transport",
     .help = "messages between the ranks of one machine, over Unix sockets",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("draft-transport", PLUGIN_VERSION, "BSD-2-Clause", features, transport_load);
