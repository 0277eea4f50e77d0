/* Progress and waiting: polls for a while where there are enough cores, then sleeps on
 * UCX's event file descriptor. UCX arms it only when nothing is pending, so no event is
 * lost.
 *
 * How long to poll: sleeping and waking up takes longer than most messages, so if
 * polling would have caught recent completions, it polls for that long. But only while
 * its core is idle otherwise: where the process's other threads compute, and there is
 * no core for this one, it sleeps at once. Polling would not only slow them down; the
 * scheduler would also charge it to this thread, and delay it when bytes arrive.
 */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "ucx.h"

/* Longest sleep between two calls of args->check. */
enum { NAP_MS = 40 };
/* Rounds with progress between two calls of args->check. */
enum { ROUNDS = 256 };
/* Polls without progress between two readings of the clock: in shared memory a poll
 * takes as long as reading the clock. Over TCP a poll is several system calls. */
enum { POLLS = 32 };
/* Pauses (of some 16 ns) between two polls. A poll takes cache lines from the sender
 * that it is writing: no pause at first, since the message may be about to arrive, then
 * one more after every BACKOFF polls; BATCH where several messages of a peer are
 * awaited, so that it writes some in a row. */
enum { BACKOFF = 4, BATCH = 24 };
/* Longest useful polling time, in multiples of spin_ns. */
enum { MOST_SPIN = 32 };
/* Pause where UCX refuses to sleep although nothing moves: it has sends that wait for
 * room in a peer's queue, and the peer may need this core to make room. */
#define REFUSED_NS 20000L
/* How often to determine whether a core is idle. */
#define RECHECK_NS UINT64_C(5000000)

dlc_status check_error(dlc_endpoint *e) {
    if (e->broken != UCS_OK)
        return endpoint_lost(e, e->broken_peer, e->broken);
    return e->failed;
}

/* Fails with the job's error, or if connecting takes too long. */
static dlc_status check_job(dlc_endpoint *e) {
    dlc_status status = e->args->check(e->args->job);
    return status == DLC_OK && e->connecting ? connect_check(e) : status;
}

void wait_refused(dlc_endpoint *e) {
    const struct timespec pause = {.tv_nsec = REFUSED_NS};
    if (e->refused++ > 0)
        (void)nanosleep(&pause, NULL);
}

static dlc_status nap(dlc_endpoint *e, int *slept) {
    ucs_status_t armed = rails_arm(e);
    if (armed == UCS_ERR_BUSY) {
        wait_refused(e);
        return DLC_OK;
    }
    if (armed != UCS_OK)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", ucx.text_of(armed));
    struct pollfd file = {.fd = e->event_fd, .events = POLLIN};
    *slept = 1;
    if (poll(&file, 1, NAP_MS) < 0 && errno != EINTR)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: poll fails");
    return check_job(e);
}

/* ---- How long to poll -------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now = {0, 0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The state of the calling thread; a third thread replaces the second. */
static waiter *waiter_of(dlc_endpoint *e) {
    pthread_t me = pthread_self();
    waiter *w = e->waiters;

    while (w < e->waiters + WAITERS - 1 && w->known && !pthread_equal(w->thread, me))
        w++;
    if (!w->known || !pthread_equal(w->thread, me))
        *w = (waiter){.thread = me,
                      .known = 1,
                      .poll_ns = e->spin_ns,
                      .core_idle = 1,
                      .checked_ns = host->now_ns()};
    return w;
}

/* Have the process's other threads left one of its cores idle since the last call? */
static int has_idle_core(const dlc_endpoint *e, waiter *w, uint64_t now) {
    uint64_t all = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
             mine = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t others = all > mine ? all - mine : 0, passed = now - w->checked_ns;
    uint64_t used = others > w->others_ns ? others - w->others_ns : 0;

    w->checked_ns = now;
    w->others_ns = others;
    return used < ((uint64_t)e->cores - 1) * passed + passed / 4;
}

/* Adapts the polling time after an idle wait since `since`; `slept`: polling was not
 * enough. */
static void adapt(const dlc_endpoint *e, waiter *w, uint64_t since, int slept) {
    uint64_t now = host->now_ns(), most = e->spin_ns * MOST_SPIN;

    if (now - w->checked_ns > RECHECK_NS)
        w->core_idle = has_idle_core(e, w, now);
    if (!w->core_idle)
        w->poll_ns = 0;
    else if (w->poll_ns < e->spin_ns)
        w->poll_ns = e->spin_ns;
    else if (slept && now - since < most)
        w->poll_ns = 2 * w->poll_ns < most ? 2 * w->poll_ns : most;
    else if (slept)
        w->poll_ns = w->poll_ns / 2 > e->spin_ns ? w->poll_ns / 2 : e->spin_ns;
}

static inline void pause_core(int times) {
#if defined(__x86_64__)
    for (int i = 0; i < times; i++)
        __builtin_ia32_pause();
#else
    (void)times;
#endif
}

/* Polls until something moves, up to POLLS times where this thread polls at all. */
static int poll_progress(dlc_endpoint *e, const waiter *w, const int *done,
                         int several) {
    int polls = w->poll_ns > 0 && !e->has_tcp_peers ? POLLS : 1;
    for (int polled = 1;; polled++) {
        int moved = progress(e);
        if (moved || *done || polled == polls)
            return moved;
        pause_core(several ? BATCH : polled / BACKOFF);
    }
}

static __attribute__((noinline)) dlc_status wait_slow(dlc_endpoint *e, const int *done,
                                                      int several) {
    uint64_t since = 0,
             now = 0; /* when it became idle, and the last reading of the clock */
    waiter *w = waiter_of(e);
    int slept = 0;

    for (unsigned round = 1; !*done; round++) {
        int moved = poll_progress(e, w, done, several);
        if (*done)
            break;
        dlc_status status = check_error(e);
        if (status == DLC_OK && round % ROUNDS == 0)
            status = check_job(e);
        if (status != DLC_OK)
            return status;
        if (moved) {
            e->refused = 0;
            if (slept || now - since > e->spin_ns)
                adapt(e, w, since, slept);
            since = now = 0;
            slept = 0;
            continue;
        }
        now = host->now_ns();
        if (!since)
            since = now;
        if (w->poll_ns > 0 && now - since < w->poll_ns)
            continue;
        status = nap(e, &slept);
        if (status != DLC_OK)
            return status;
    }
    if (slept || now - since > e->spin_ns)
        adapt(e, w, since, slept);
    return DLC_OK;
}

dlc_status wait_for(dlc_endpoint *e, const int *done, int several) {
    (void)progress(e);
    return *done ? DLC_OK : wait_slow(e, done, several);
}
