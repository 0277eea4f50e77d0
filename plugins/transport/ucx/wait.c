/* Moving on, and waiting: looks for a while where there are cores enough, then sleeps
 * on UCX's event file until something comes. UCX arms it only when nothing is there to
 * be done, so no event is lost.
 *
 * For how long: to sleep and be woken takes longer than most messages, so where the
 * waits of late would have been over soon, it looks for that long. But only while its
 * core has nothing else to do: where the process's other threads compute, and there is
 * no core for this one, it sleeps at once. Looking would not only keep them from it,
 * the system would also count it as this thread's turn, and let it wait when bytes
 * come.
 */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "ucx.h"

/* How long to sleep before the job is asked whether it ends. */
enum { NAP_MS = 40 };
/* Rounds in which something moved before the job is asked. */
enum { ROUNDS = 256 };
/* Looks at which nothing moved before the clock is asked: in memory it takes as long as
 * one. Over TCP one is some system calls. */
enum { LOOKS = 32 };
/* Pauses between two looks, of some 16 ns each. A look takes from the sender the lines
 * of memory that it writes: no pause at first, since the message may be about to come,
 * then one more with each TIRING looks; BATCH where several messages are wanted of a
 * peer, so that it writes some in a row. */
enum { TIRING = 4, BATCH = 24 };
/* To look for longer than this never pays, in spin_ns. */
enum { MOST_PATIENCE = 32 };
/* How long a judgement on whether there is a core to spare holds. */
#define JUDGED_FOR_NS UINT64_C(5000000)

dlc_status trouble(dlc_endpoint *e) {
    if (e->broken != UCS_OK)
        return endpoint_lost(e, e->broken_peer, e->broken);
    return e->failed;
}

static dlc_status nap(dlc_endpoint *e, int *slept) {
    ucs_status_t armed = ucx.worker_arm(e->worker);
    if (armed == UCS_ERR_BUSY)
        return DLC_OK;
    if (armed != UCS_OK)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", ucx.text_of(armed));
    struct pollfd file = {.fd = e->wake_fd, .events = POLLIN};
    *slept = 1;
    if (poll(&file, 1, NAP_MS) < 0 && errno != EINTR)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: poll fails");
    return e->args->check(e->args->job);
}

/* ---- How long to look --------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now = {0, 0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What is known of the calling thread; of a third one what was of the second is
 * forgotten. */
static watcher *watcher_of(dlc_endpoint *e) {
    pthread_t me = pthread_self();
    watcher *w = e->watchers;

    while (w < e->watchers + WATCHERS - 1 && w->known && !pthread_equal(w->thread, me))
        w++;
    if (!w->known || !pthread_equal(w->thread, me))
        *w = (watcher){.thread = me,
                       .known = 1,
                       .patience = e->spin_ns,
                       .spare = 1,
                       .judged = host->now_ns()};
    return w;
}

/* Have the process's other threads left a core of its share, since this was asked? */
static int core_to_spare(const dlc_endpoint *e, watcher *w, uint64_t now) {
    uint64_t all = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
             mine = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t others = all > mine ? all - mine : 0, passed = now - w->judged;
    uint64_t used = others > w->others ? others - w->others : 0;

    w->judged = now;
    w->others = others;
    return used < ((uint64_t)e->cores - 1) * passed + passed / 4;
}

/* A wait is over in which nothing moved since then; `slept`: it was not only looked. */
static void judge(const dlc_endpoint *e, watcher *w, uint64_t since, int slept) {
    uint64_t now = host->now_ns(), most = e->spin_ns * MOST_PATIENCE;

    if (now - w->judged > JUDGED_FOR_NS)
        w->spare = core_to_spare(e, w, now);
    if (!w->spare)
        w->patience = 0;
    else if (w->patience < e->spin_ns)
        w->patience = e->spin_ns;
    else if (slept && now - since < most)
        w->patience = 2 * w->patience < most ? 2 * w->patience : most;
    else if (slept)
        w->patience = w->patience / 2 > e->spin_ns ? w->patience / 2 : e->spin_ns;
}

static inline void pause_core(int times) {
#if defined(__x86_64__)
    for (int i = 0; i < times; i++)
        __builtin_ia32_pause();
#else
    (void)times;
#endif
}

/* Looks until something moves, LOOKS times where there is the patience. */
static int look(dlc_endpoint *e, const watcher *w, const int *done, int several) {
    int looks = w->patience > 0 && !e->streams ? LOOKS : 1;
    for (int looked = 1;; looked++) {
        int moved = move_on(e);
        if (moved || *done || looked == looks)
            return moved;
        pause_core(several ? BATCH : looked / TIRING);
    }
}

static __attribute__((noinline)) dlc_status wait_longer(dlc_endpoint *e,
                                                        const int *done, int several) {
    uint64_t since = 0, now = 0; /* when it was first seen to stand still, and last */
    watcher *w = watcher_of(e);
    int slept = 0;

    for (unsigned round = 1; !*done; round++) {
        int moved = look(e, w, done, several);
        if (*done)
            break;
        dlc_status status = trouble(e);
        if (status == DLC_OK && round % ROUNDS == 0)
            status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        if (moved) {
            if (slept || now - since > e->spin_ns)
                judge(e, w, since, slept);
            since = now = 0;
            slept = 0;
            continue;
        }
        now = host->now_ns();
        if (!since)
            since = now;
        if (w->patience > 0 && now - since < w->patience)
            continue;
        status = nap(e, &slept);
        if (status != DLC_OK)
            return status;
    }
    if (slept || now - since > e->spin_ns)
        judge(e, w, since, slept);
    return DLC_OK;
}

dlc_status wait_for(dlc_endpoint *e, const int *done, int several) {
    (void)move_on(e);
    return *done ? DLC_OK : wait_longer(e, done, several);
}
