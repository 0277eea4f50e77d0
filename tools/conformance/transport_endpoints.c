/* The checks of a transport's endpoints: several at a time, what they leave behind, how
 * they wait, and how they close. */
#include <malloc.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "group.h"
#include "host.h"
#include "process.h"

static void pause_for(double seconds) {
    const struct timespec pause = {
        .tv_sec = (time_t)seconds,
        .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&pause, NULL);
}

/* ---- Waiting ---------------------------------------------------------------- */

/* The rule is one check each 0.1 s. The limit leaves room for a busy machine. */
#define BLOCKED_SECONDS 1.5
enum { CHECKS_LEAST = 5 };

static void must_have_checked(suite_member *m, int64_t before, const char *call) {
    int64_t checks = m->checks - before;
    if (checks < CHECKS_LEAST)
        suite_fail(
            m->run,
            "%s called args->check %lld times in %.1f s; a blocked call must ask "
            "it every 0.1 s, to end soon after the job begins to end",
            call, (long long)checks, BLOCKED_SECONDS);
}

static void block_in_wait(suite_member *m) {
    unsigned char *byte = suite_group_bytes(m, 1);
    dlc_request *request;
    suite_group_barrier(m);
    if (m->rank == 1) {
        pause_for(BLOCKED_SECONDS);
        suite_group_send(m, 0, 1, byte, 1, &request);
    } else {
        suite_group_recv(m, 1, 1, byte, 1, &request);
    }
    int64_t before = m->checks;
    suite_group_wait(m, request);
    if (m->rank == 0)
        must_have_checked(m, before, "wait");
}

/* Nothing arrives before BLOCKED_SECONDS. */
static void must_end_by_wakeup(suite_member *m, dlc_request *const request[2]) {
    int32_t which = 7;
    uint64_t start = dlc_now_ns();
    m->ops->wakeup(m->endpoint);
    suite_must(m->run, m->ops->wait_any(m->endpoint, request, 2, 30, &which),
               "wait_any");
    if (which != -1 || dlc_since(start) > BLOCKED_SECONDS / 2)
        suite_fail(m->run,
                   "after wakeup wait_any returned %d in %.1f s, not -1 at once",
                   (int)which, dlc_since(start));
}

static void block_in_wait_any(suite_member *m) {
    unsigned char *byte = suite_group_bytes(m, 1);
    dlc_request *request[2] = {NULL};
    int32_t which = -1;
    suite_group_barrier(m);
    if (m->rank == 1) {
        pause_for(BLOCKED_SECONDS);
        suite_group_send(m, 0, 1, byte, 1, request);
        suite_group_wait(m, request[0]);
        return;
    }
    int64_t before = m->checks;
    suite_group_recv(m, 1, 1, byte, 1, &request[1]);
    must_end_by_wakeup(m, request);
    suite_must(m->run, m->ops->wait_any(m->endpoint, request, 2, 30, &which),
               "wait_any");
    if (which != 1)
        suite_fail(m->run, "wait_any returned %d when request 1 was done", (int)which);
    must_have_checked(m, before, "wait_any");
}

static void block_in_all_reduce(suite_member *m) {
    float *x = device_fixture_floats(m->run, &m->device, 1000);
    suite_group_barrier(m);
    if (m->rank == 1)
        pause_for(BLOCKED_SECONDS);
    int64_t before = m->checks;
    suite_must(m->run, m->ops->all_reduce(m->endpoint, x, 1000), "all_reduce");
    if (m->rank == 0)
        must_have_checked(m, before, "all_reduce");
}

static void asks_for_the_job(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    suite_group_play(run, 2, 0, block_in_wait);
    if (DLC_CAN(ops, wait_any))
        suite_group_play(run, 2, 0, block_in_wait_any);
    if (DLC_CAN(ops, all_reduce))
        suite_group_play(run, 2, 0, block_in_all_reduce);
}

/* ---- Two endpoints ---------------------------------------------------------- */

/* Sends one byte to the peer and receives one. */
static void swap_byte(suite_member *m, dlc_endpoint *endpoint, unsigned char *out,
                      unsigned char *in) {
    dlc_request *requests[2];
    int32_t peer = 1 - m->rank;
    suite_must(m->run, m->ops->recv(endpoint, peer, 3, in, 1, &requests[0]), "recv");
    suite_must(m->run, m->ops->send(endpoint, peer, 3, out, 1, &requests[1]), "send");
    for (int i = 0; i < 2; i++)
        suite_must(m->run, m->ops->wait(endpoint, requests[i]), "wait");
}

static dlc_endpoint *open_another(suite_member *m) {
    dlc_endpoint *other = NULL;
    suite_must(
        m->run, m->ops->open(&m->args, &other),
        "opening a second endpoint, as messages between ranks need it beside the "
        "exchange,");
    suite_group_barrier(m);
    return other;
}

/* The same tag on both, received in the other order than it was sent. */
static void use_two(suite_member *m) {
    dlc_endpoint *endpoints[] = {m->endpoint, open_another(m)};
    dlc_request *sent[2], *received;
    int32_t peer = 1 - m->rank;
    for (int i = 0; i < 2; i++) {
        unsigned char *out = suite_group_bytes(m, 1);
        *out = (unsigned char)(10 + i);
        suite_must(m->run, m->ops->send(endpoints[i], peer, 3, out, 1, &sent[i]),
                   "send");
    }
    for (int i = 1; i >= 0; i--) {
        unsigned char *in = suite_group_bytes(m, 1);
        suite_must(m->run, m->ops->recv(endpoints[i], peer, 3, in, 1, &received),
                   "recv");
        suite_must(m->run, m->ops->wait(endpoints[i], received), "wait");
        if (*in != 10 + i)
            suite_fail(m->run, "a message arrives at another endpoint than its own");
    }
    for (int i = 0; i < 2; i++)
        suite_must(m->run, m->ops->wait(endpoints[i], sent[i]), "wait");
    suite_group_barrier(m);
    m->ops->close(endpoints[1]);
    swap_byte(m, m->endpoint, suite_group_bytes(m, 1), suite_group_bytes(m, 1));
}

static void two_work(suite_run *run) {
    suite_group_play(run, 2, 0, use_two);
}

/* ---- Leaks ------------------------------------------------------------------ */

/* What the process holds. */
typedef struct holdings {
    int64_t allocations; /* of the host's memory */
    int64_t bytes;       /* of malloc */
    int files, threads;
} holdings;

static holdings take_stock(void) {
    struct mallinfo2 used = mallinfo2();
    return (holdings){.allocations = suite_host_allocations(),
                      .bytes = (int64_t)(used.uordblks + used.hblkhd),
                      .files = suite_count_entries(SUITE_FILES),
                      .threads = suite_count_entries(SUITE_THREADS)};
}

static void open_again_and_again(suite_member *m) {
    enum { TIMES = 8, WARM_UP = 2 };
    holdings before = {0};
    for (int i = 0; i < TIMES; i++) {
        dlc_endpoint *other = open_another(m);
        m->ops->close(other);
        suite_group_barrier(m);
        if (i == WARM_UP)
            before = take_stock();
    }
    holdings after = take_stock();
    int times = TIMES - 1 - WARM_UP;
    if (after.files >= before.files + times)
        suite_fail(m->run, "opened and closed %d times, it leaves %d files open", times,
                   after.files - before.files);
    if (after.threads >= before.threads + times)
        suite_fail(m->run, "opened and closed %d times, it leaves %d threads running",
                   times, after.threads - before.threads);
    if (after.allocations >= before.allocations + times)
        suite_fail(m->run, "opened and closed %d times, it leaks %lld allocations",
                   times, (long long)(after.allocations - before.allocations));
}

static void send_again_and_again(suite_member *m) {
    enum { TIMES = 1000, LEAST_BYTES = 16 };
    unsigned char *out = suite_group_bytes(m, 1), *in = suite_group_bytes(m, 1);
    holdings stock[3] = {{0}};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TIMES; i++)
            swap_byte(m, m->endpoint, out, in);
        stock[round] = take_stock();
    }
    /* A pool may grow once, but not as much in each round. */
    int64_t objects = stock[2].allocations - stock[1].allocations;
    int64_t bytes = stock[2].bytes - stock[1].bytes;
    if (stock[2].files >= stock[1].files + TIMES ||
        stock[2].threads >= stock[1].threads + TIMES)
        suite_fail(m->run,
                   "%d messages in each direction leave %d files open and %d "
                   "threads running",
                   TIMES, stock[2].files - stock[1].files,
                   stock[2].threads - stock[1].threads);
    int64_t least = (int64_t)TIMES * LEAST_BYTES;
    int64_t earlier = stock[1].bytes - stock[0].bytes;
    if (objects >= TIMES || (bytes >= least && earlier >= least))
        suite_fail(m->run,
                   "%d messages in each direction leak %lld allocations, %lld bytes: a "
                   "request is released when it is found done",
                   TIMES, (long long)objects, (long long)bytes);
}

static void leaks_nothing(suite_run *run) {
    suite_group_play(run, 2, 0, open_again_and_again);
    suite_group_play(run, 2, 0, send_again_and_again);
}

/* ---- Closing ---------------------------------------------------------------- */

static void close_alone(suite_member *m) {
    enum { BYTES = 1 << 20 };
    const double busy = 2, most = 1;
    dlc_request *request;
    suite_group_barrier(m);
    if (m->rank == 1) {
        pause_for(busy);
        return;
    }
    suite_group_recv(m, 1, 1, suite_group_bytes(m, BYTES), BYTES, &request);
    suite_group_send(m, 1, 2, suite_group_bytes(m, BYTES), BYTES, &request);
    uint64_t start = dlc_now_ns();
    m->ops->close(m->endpoint);
    m->endpoint = NULL;
    if (dlc_since(start) > most)
        suite_fail(m->run, "close took %.1f s while a peer was busy; it must not wait",
                   dlc_since(start));
}

static void closes_alone(suite_run *run) {
    suite_group_play(run, 2, 0, close_alone);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_TRANSPORT, 0, SUITE_LOADED, 60, run }

const suite_check suite_transport_endpoint_checks[] = {
    CHECK("transport.check",
          "a blocked call asks whether the job is ending, and ends by wakeup",
          asks_for_the_job),
    CHECK("transport.second", "two endpoints work side by side", two_work),
    CHECK("transport.leaks", "endpoints and requests leak nothing", leaks_nothing),
    CHECK("transport.close_alone", "close does not wait for a peer", closes_alone),
    {.name = NULL},
};
