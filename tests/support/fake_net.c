/* Implements the fake network of fake_net.h: matches sends and receives, and moves one
 * message at a time when all ranks wait. */
#include "support/fake_net.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "support/ranks_shared.h"

enum { SEND, RECEIVE };
/* Where a rank waits outside of the transport (in a barrier of the test), the others
 * continue after this time. */
#define IDLE_NS 200000000L

struct dlc_request {
    dlc_request *next; /* in the net's list, in the order of one endpoint's calls */
    dlc_endpoint *endpoint;
    int direction;
    int32_t peer;
    dlc_tag tag;
    unsigned char *buffer;
    unsigned char *kept; /* owned; a buffered send's bytes when it was sent */
    size_t bytes, sent;  /* of a receive: the sender's size, once done */
    uint64_t digest,
        number; /* of a send: digest of its bytes, and its number at the endpoint */
    int done;   /* its owner may continue */
    int taken, over; /* the owner has seen it; it was received, or never will be */
    /* Of a send: bytes arrived, and bytes copied to its receive. */
    size_t arrived, copied;
    int has_arrived;
    dlc_request *partner;
};

struct dlc_endpoint {
    dlc_transport_args args;
    dlc_endpoint **peers; /* owned; of the group, by rank */
    dlc_endpoint *next;   /* in the net's list */
    uint64_t id, sends;
    int wakeup;
};

typedef struct waiter {
    struct waiter *next;
    dlc_request *const *requests;
    int32_t count, which;
    int woken, can_get_wakeup;
    dlc_endpoint *endpoint;
} waiter;

typedef struct net {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, running, waiting;
    net_schedule schedule;
    uint64_t seed, endpoints, activity;
    dlc_random random;
    dlc_request *requests; /* owned */
    dlc_endpoint *opened;  /* owned */
    waiter *waiters;
    test_job *job;
    net_result result;
} net;

static net the_net;

static void lock(void) {
    (void)pthread_mutex_lock(&the_net.lock);
}

static void unlock(void) {
    (void)pthread_mutex_unlock(&the_net.lock);
}

static uint64_t digest_of(uint64_t digest, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static void fault(const char *what, const dlc_request *r) {
    net_result *result = &the_net.result;
    if (result->faults++ == 0 && !result->deadlocked)
        (void)snprintf(result->detail, sizeof result->detail,
                       "%s: rank %d, peer %d, tag %" PRIx64 ", %zu bytes", what,
                       r->endpoint->args.rank, r->peer, r->tag, r->bytes);
}

/* ---- Delivering messages -------------------------------------------------------- */

static int is_for(const dlc_request *send, const dlc_request *receive) {
    return send->direction == SEND && receive->direction == RECEIVE && !receive->done &&
           send->tag == receive->tag &&
           send->endpoint->peers[send->peer] == receive->endpoint &&
           receive->peer == send->endpoint->args.rank;
}

/* Matches sends and receives of a tag in order. */
static void match(dlc_request *send) {
    for (dlc_request *r = the_net.requests; r; r = r->next) {
        if (r == send || !is_for(send, r) || r->partner)
            continue;
        send->partner = r;
        r->partner = send;
        return;
    }
}

static void match_all(void) {
    for (dlc_request *r = the_net.requests; r; r = r->next)
        if (r->direction == SEND && !r->partner && !r->over)
            match(r);
}

/* Frees requests that neither the owner nor the net needs. */
static void free_requests(int all) {
    dlc_request **at = &the_net.requests;
    while (*at) {
        dlc_request *r = *at;
        if (!all && !(r->taken && r->over)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r->kept);
        free(r);
    }
}

/* Can it make progress without a call of its owner? */
static int is_deliverable(const dlc_request *r) {
    if (r->direction != SEND || r->over)
        return 0;
    if (r->partner)
        return 1;
    return r->kept && !r->has_arrived;
}

/* Higher is sooner; ties are broken by the sender. */
static uint64_t priority(const dlc_request *r) {
    const net *n = &the_net;
    int32_t to = r->peer, from = r->endpoint->args.rank;
    switch (n->schedule) {
    case NET_EARLY:
        return !r->partner;
    case NET_NEWEST:
        return r->number;
    case NET_STARVED:
        return to != (int32_t)(n->seed % (uint64_t)n->ranks);
    case NET_SLOW_BACK:
        return to > from;
    default:
        return UINT64_MAX - r->number;
    }
}

static int comes_before(const dlc_request *a, const dlc_request *b) {
    if (priority(a) != priority(b))
        return priority(a) > priority(b);
    if (a->endpoint->id != b->endpoint->id)
        return a->endpoint->id < b->endpoint->id;
    return a->number < b->number;
}

/* The order of the list depends on thread scheduling, the choice does not. */
static dlc_request *choose(void) {
    dlc_request *best = NULL;
    uint64_t draw = dlc_random_u32(&the_net.random), best_rank = 0;
    for (dlc_request *r = the_net.requests; r; r = r->next) {
        if (!is_deliverable(r))
            continue;
        dlc_random random = dlc_random_make(draw, r->endpoint->id << 32 | r->number);
        uint64_t rank = dlc_random_u32(&random);
        int first = !best || (the_net.schedule == NET_RANDOM ? rank > best_rank
                                                             : comes_before(r, best));
        if (first) {
            best = r;
            best_rank = rank;
        }
    }
    return best;
}

static size_t part_of(size_t left) {
    if (left < 2 || dlc_random_below(&the_net.random, 3) == 0)
        return left;
    return 1 + (size_t)dlc_random_below(&the_net.random, left - 1);
}

/* Copies what has arrived to the receive buffer. */
static void copy_arrived(dlc_request *send) {
    dlc_request *to = send->partner;
    const unsigned char *from = send->kept ? send->kept : send->buffer;
    size_t end = send->arrived < to->bytes ? send->arrived : to->bytes;
    if (end > send->copied)
        memcpy(to->buffer + send->copied, from + send->copied, end - send->copied);
    send->copied = end > send->copied ? end : send->copied;
}

static void finish(dlc_request *send) {
    dlc_request *to = send->partner;
    if (!send->kept && digest_of(0, send->buffer, send->bytes) != send->digest)
        fault("a buffer was written while it was sent", send);
    to->sent = send->bytes;
    send->partner = to->partner = NULL;
    send->done = send->over = to->done = to->over = 1;
}

static void trace(const dlc_request *r, size_t part) {
    uint64_t what[] = {r->endpoint->id, r->number, (uint64_t)r->peer, part};
    the_net.result.trace = digest_of(the_net.result.trace, what, sizeof what);
    the_net.result.steps++;
}

static void deliver(dlc_request *send) {
    size_t part = part_of(send->bytes - send->arrived);
    trace(send, part);
    send->arrived += part;
    send->has_arrived = send->arrived == send->bytes;
    if (!send->partner)
        return;
    copy_arrived(send);
    if (send->has_arrived)
        finish(send);
}

/* ---- Waiting ------------------------------------------------------------------- */

static void wake(waiter *w, int32_t which) {
    w->which = which;
    w->woken = 1;
    the_net.waiting--;
    (void)pthread_cond_broadcast(&the_net.changed);
}

static int wake_done(void) {
    int any = 0;
    for (waiter *w = the_net.waiters; w; w = w->next)
        for (int32_t i = 0; i < w->count && !w->woken; i++)
            if (w->requests[i] && w->requests[i]->done) {
                wake(w, i);
                any = 1;
            }
    return any;
}

/* A thread that is no rank's may still call wakeup. */
static int may_get_wakeup(void) {
    for (const waiter *w = the_net.waiters; w; w = w->next)
        if (w->can_get_wakeup)
            return 1;
    return 0;
}

static void describe_waiters(void) {
    net_result *result = &the_net.result;
    size_t at = (size_t)snprintf(result->detail, sizeof result->detail, "deadlock:");
    for (const waiter *w = the_net.waiters; w && at < sizeof result->detail;
         w = w->next)
        for (int32_t i = 0; i < w->count && at < sizeof result->detail; i++) {
            const dlc_request *r = w->requests[i];
            if (r)
                at += (size_t)snprintf(result->detail + at, sizeof result->detail - at,
                                       " rank %d %s %d (tag %" PRIx64 ", %zu bytes);",
                                       r->endpoint->args.rank,
                                       r->direction == SEND ? "sends to"
                                                            : "receives from",
                                       r->peer, r->tag, r->bytes);
        }
}

/* Moves messages until some rank may continue; returns 0 if none ever will. */
static int step(void) {
    match_all();
    for (;;) {
        dlc_request *next = choose();
        if (!next)
            return 0;
        deliver(next);
        match_all();
        if (wake_done())
            return 1;
    }
}

static void report_deadlock(void) {
    if (may_get_wakeup())
        return;
    describe_waiters();
    the_net.result.deadlocked = 1;
    atomic_store(&the_net.job->ended, 1);
    (void)pthread_cond_broadcast(&the_net.changed);
}

/* Called with the lock held. Returns after IDLE_NS at the latest; non-zero if nothing
 * is in progress then. */
static int sleep_idle(void) {
    uint64_t before = the_net.activity;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_NS;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(&the_net.changed, &the_net.lock, &until) != 0 &&
           before == the_net.activity;
}

static void leave(waiter *w) {
    waiter **at = &the_net.waiters;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (!w->woken)
        the_net.waiting--;
}

/* Called with the lock held. Waits until a request is done or `seconds` are over. */
static dlc_status await(waiter *w, double seconds) {
    const dlc_transport_args *args = &w->endpoint->args;
    dlc_status status = DLC_OK;
    struct timespec began;
    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    w->which = -1;
    w->next = the_net.waiters;
    the_net.waiters = w;
    the_net.waiting++;
    the_net.activity++;
    (void)wake_done();
    while (!w->woken && (status = args->check(args->job)) == DLC_OK) {
        struct timespec now;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        double passed = (double)(now.tv_sec - began.tv_sec) +
                        (double)(now.tv_nsec - began.tv_nsec) * 1e-9;
        if (w->endpoint->wakeup || passed >= seconds)
            break;
        int all = the_net.waiting == the_net.running;
        if (all && !step())
            report_deadlock();
        if (!w->woken && sleep_idle() && the_net.waiting > 0 &&
            !the_net.result.deadlocked) {
            the_net.result.hurried = 1;
            (void)step();
        }
    }
    leave(w);
    w->endpoint->wakeup = w->can_get_wakeup ? 0 : w->endpoint->wakeup;
    return status;
}

/* ---- The transport ------------------------------------------------------------- */

static dlc_status net_predict(const dlc_transport_args *args,
                              dlc_transport_prediction *prediction, char *reason,
                              size_t reason_bytes) {
    *prediction = dlc_predict(args, 1e-6, 1, 1);
    (void)snprintf(reason, reason_bytes, "for tests");
    return DLC_OK;
}

static dlc_status net_open(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    dlc_endpoint *e = calloc(1, sizeof *e);
    dlc_endpoint **peers = calloc((size_t)args->ranks, sizeof(dlc_endpoint *));
    if (!e || !peers) {
        free(peers);
        free(e);
        return DLC_ERR_NOMEM;
    }
    e->args = *args;
    e->peers = peers;
    lock();
    e->next = the_net.opened;
    the_net.opened = e;
    e->id = ++the_net.endpoints;
    unlock();
    dlc_status status = args->oob_all_gather(args->job, &e, sizeof e, peers);
    /* The order in which ranks open does not matter. */
    uint64_t group = 0;
    for (int32_t r = 0; status == DLC_OK && r < args->ranks; r++)
        group = peers[r]->id > group ? peers[r]->id : group;
    if (status == DLC_OK)
        status = args->oob_all_gather(args->job, &e, sizeof e, peers);
    e->id = group * RANKS_MAX + (uint64_t)args->rank;
    *endpoint = e;
    return status;
}

/* A completed send arrives even if its sender has closed. */
static void net_close(dlc_endpoint *e) {
    if (!e)
        return;
    lock();
    for (dlc_request *r = the_net.requests; r; r = r->next) {
        int mine = r->endpoint == e, kept = r->direction == SEND && r->kept;
        int to_me = r->direction == SEND && r->endpoint->peers[r->peer] == e;
        r->taken |= mine;
        if (!to_me && (!mine || kept))
            continue;
        if (r->partner)
            r->partner->partner = NULL;
        r->partner = NULL;
        r->over = 1;
    }
    free_requests(0);
    the_net.activity++;
    (void)pthread_cond_broadcast(&the_net.changed);
    unlock();
}

static int is_buffered(const dlc_endpoint *e, int32_t peer) {
    dlc_random random = dlc_random_make(the_net.seed, e->id << 32 | e->sends);
    switch (the_net.schedule) {
    case NET_EARLY:
    case NET_STARVED:
    case NET_NEWEST:
        return 1;
    case NET_UNBUFFERED:
        return 0;
    case NET_SLOW_BACK:
        return peer > e->args.rank;
    case NET_ONE_BUFFER:
        for (const dlc_request *r = the_net.requests; r; r = r->next)
            if (r->direction == SEND && r->endpoint == e && r->peer == peer &&
                r->kept && !r->over)
                return 0;
        return 1;
    default:
        return dlc_random_below(&random, 2) == 0;
    }
}

static dlc_request *add_request(dlc_endpoint *e, int direction, int32_t peer,
                                dlc_tag tag, void *buffer, size_t bytes) {
    dlc_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (dlc_request){.endpoint = e,
                       .direction = direction,
                       .peer = peer,
                       .tag = tag,
                       .buffer = buffer,
                       .bytes = bytes};
    dlc_request **last = &the_net.requests;
    while (*last)
        last = &(*last)->next;
    *last = r;
    the_net.activity++;
    return r;
}

static dlc_status check_peer(const dlc_endpoint *e, int32_t peer) {
    if (peer >= 0 && peer < e->args.ranks)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG, "there is no rank %d among %d", peer,
                    e->args.ranks);
}

static dlc_status net_send(dlc_endpoint *e, int32_t peer, dlc_tag tag,
                           const void *buffer, size_t bytes, dlc_request **request) {
    DLC_TRY(check_peer(e, peer));
    lock();
    int buffered = is_buffered(e, peer);
    dlc_request *r = add_request(e, SEND, peer, tag, (void *)buffer, bytes);
    unsigned char *kept = buffered ? malloc(bytes + 1) : NULL;
    if (r && kept && bytes > 0)
        memcpy(kept, buffer, bytes);
    if (r) {
        r->kept = kept;
        r->done = buffered;
        r->digest = digest_of(0, buffer, bytes);
        r->number = e->sends++;
    }
    unlock();
    *request = r;
    return r ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status net_recv(dlc_endpoint *e, int32_t peer, dlc_tag tag, void *buffer,
                           size_t bytes, dlc_request **request) {
    DLC_TRY(check_peer(e, peer));
    lock();
    dlc_request *r = add_request(e, RECEIVE, peer, tag, buffer, bytes);
    if (r && bytes > 0)
        memset(buffer, 0xee, bytes);
    unlock();
    *request = r;
    return r ? DLC_OK : DLC_ERR_NOMEM;
}

/* Called with the lock held, for a request that is done. */
static dlc_status take(dlc_request *r) {
    dlc_request it = *r;
    r->taken = 1;
    free_requests(0);
    if (it.direction == SEND || it.sent == it.bytes)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "message from rank %d, tag %" PRIx64
                    ": %zu bytes were sent, %zu are expected",
                    it.peer, it.tag, it.sent, it.bytes);
}

static dlc_status net_test(dlc_endpoint *e, dlc_request *request, int *done) {
    lock();
    if (!request->done && the_net.waiting == the_net.running - 1)
        (void)step();
    *done = request->done;
    dlc_status status = request->done ? take(request) : e->args.check(e->args.job);
    unlock();
    return status;
}

static dlc_status net_wait_any(dlc_endpoint *e, dlc_request *const *requests,
                               int32_t count, double seconds, int32_t *which) {
    lock();
    waiter w = {
        .requests = requests, .count = count, .can_get_wakeup = 1, .endpoint = e};
    dlc_status status = await(&w, seconds);
    *which = w.which;
    if (status == DLC_OK && w.which >= 0)
        status = take(requests[w.which]);
    unlock();
    return status;
}

static dlc_status net_wait(dlc_endpoint *e, dlc_request *request) {
    lock();
    waiter w = {.requests = &request, .count = 1, .endpoint = e};
    dlc_status status = await(&w, 1e9);
    if (status == DLC_OK)
        status = take(request);
    unlock();
    return status;
}

static void net_wakeup(dlc_endpoint *e) {
    lock();
    e->wakeup = 1;
    the_net.activity++;
    (void)pthread_cond_broadcast(&the_net.changed);
    unlock();
}

const dlc_feature *fake_net_feature(void) {
    static const dlc_transport_ops ops = {.size = sizeof ops,
                                          .predict = net_predict,
                                          .open = net_open,
                                          .close = net_close,
                                          .send = net_send,
                                          .recv = net_recv,
                                          .test = net_test,
                                          .wait = net_wait,
                                          .wait_any = net_wait_any,
                                          .wakeup = net_wakeup};
    static const dlc_feature feature = {.size = sizeof feature,
                                        .kind = DLC_KIND_TRANSPORT,
                                        .name = "fake",
                                        .help = "for tests",
                                        .ops = &ops};
    return &feature;
}

/* ---- Running the ranks --------------------------------------------------------- */

typedef struct rank_thread {
    test_rank rank;
    rank_body *body;
    void *context;
    pthread_t thread;
} rank_thread;

static void *run_rank(void *context) {
    rank_thread *t = context;
    t->body(&t->rank, t->context);
    lock();
    the_net.running--;
    the_net.activity++;
    (void)pthread_cond_broadcast(&the_net.changed);
    unlock();
    return NULL;
}

static void free_all(void) {
    free_requests(1);
    while (the_net.opened) {
        dlc_endpoint *e = the_net.opened;
        the_net.opened = e->next;
        free(e->peers);
        free(e);
    }
}

net_result fake_net_run(int ranks, net_schedule schedule, uint64_t seed,
                        rank_body *body, void *context) {
    static rank_thread threads[RANKS_MAX];
    test_job *job = calloc(1, sizeof *job);

    the_net = (net){.lock = PTHREAD_MUTEX_INITIALIZER,
                    .changed = PTHREAD_COND_INITIALIZER,
                    .ranks = ranks,
                    .running = ranks,
                    .schedule = schedule,
                    .seed = seed,
                    .random = dlc_random_make(seed, schedule),
                    .job = job};
    for (int r = 0; r < ranks; r++) {
        threads[r] = (rank_thread){
            .rank = {r, ranks, job, job->shared}, .body = body, .context = context};
        if (pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]) != 0)
            abort();
    }
    for (int r = 0; r < ranks; r++)
        (void)pthread_join(threads[r].thread, NULL);
    free_all();
    free(job);
    return the_net.result;
}
