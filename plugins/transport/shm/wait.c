/* Waiting: polls for a moment, then sleeps on the rank's own futex until another rank
 * wakes it. Where ranks share cores, each poll yields the core first: among ranks that
 * take part in one collective that is several times faster than sleeping, and where
 * others compute the polling time is over when this rank runs again.
 *
 * No wakeup is lost. A sleeper stores asleep = 1 and then checks its condition once
 * more; a waker stores the change first and then loads `asleep`. All four are
 * sequentially consistent, so at least one of the two sees the other's store. A waker
 * that saw 1 stores 0 before it calls the kernel: a sleeper that is not in the kernel
 * yet finds another value than it expects and returns at once.
 *
 * A sleeper that waits for progress counters says which, and is left asleep until all
 * of them have got there: its goal is written before `asleep`, so a waker whose counter
 * the sleeper's last check missed reads the complete goal, and the last of several
 * ranks to get there sees the counters of the others.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

/* Longest sleep between two calls of args->check. */
#define NAP_NS 40000000L
/* Rounds with progress between two calls of args->check. */
enum { ROUNDS = 256 };
/* Checks of the condition between two polls of the messages. */
enum { SPINS = 16 };

void wake_rank(head *sleeper) {
    if (atomic_load(&sleeper->asleep) && atomic_exchange(&sleeper->asleep, 0))
        syscall(SYS_futex, &sleeper->asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Moves messages and checks the condition; *idle = 1 when nothing moved and it does not
 * hold. */
static dlc_status poll_messages(dlc_endpoint *e, condition *holds, const void *what,
                                int *idle) {
    int moved = 0;
    dlc_status status = messages_move(e, &moved);
    *idle = !moved && !holds(e, what);
    return status;
}

/* Publishes what this rank waits for, before `asleep` is set, so that other ranks don't
 * wake_rank it too early. */
static void publish_goal(head *h, const goal *aim) {
    atomic_store(&h->end, aim ? aim->end : 0);
    if (aim) {
        atomic_store(&h->counter, aim->counter);
        atomic_store(&h->first, aim->first);
        atomic_store(&h->steps, aim->steps);
    }
}

/* A timeout of `seconds`, at most NAP_NS. */
static struct timespec nap_of(double seconds) {
    long most = seconds * 1e9 < (double)NAP_NS ? (long)(seconds * 1e9) : NAP_NS;
    return (struct timespec){0, most};
}

static dlc_status nap(dlc_endpoint *e, condition *holds, const void *what,
                      const goal *aim, double seconds) {
    struct timespec limit = nap_of(seconds);
    int idle = 0;

    publish_goal(e->head, aim);
    atomic_store(&e->head->asleep, 1);
    dlc_status status = poll_messages(e, holds, what, &idle);
    if (status == DLC_OK && idle)
        syscall(SYS_futex, &e->head->asleep, FUTEX_WAIT, 1, &limit, NULL, 0);
    atomic_store(&e->head->asleep, 0);
    return status == DLC_OK ? e->args->check(e->args->job) : status;
}

/* Polls the condition alone for a moment. */
static void spin(const dlc_endpoint *e, condition *holds, const void *what) {
    if (e->oversubscribed)
        (void)sched_yield();
    for (int i = 0; i < SPINS && !holds(e, what); i++)
        pause_core();
}

dlc_status wait_until(dlc_endpoint *e, condition *holds, const void *what,
                      const goal *aim) {
    uint64_t since = 0; /* when it became idle; 0: it is not */

    for (int round = 1; !holds(e, what); round++) {
        int idle = 0;
        dlc_status status = poll_messages(e, holds, what, &idle);
        if (status == DLC_OK && round % ROUNDS == 0)
            status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        if (!idle) {
            since = 0;
            continue;
        }
        if (e->spin_ns > 0) {
            uint64_t now = host->now_ns();
            since = since ? since : now;
            if (now - since < e->spin_ns) {
                spin(e, holds, what);
                continue;
            }
        }
        status = nap(e, holds, what, aim, 1.0);
        if (status != DLC_OK)
            return status;
        since = 0;
    }
    return DLC_OK;
}

/* ---- wait_any ----------------------------------------------------------------- */

void wait_wakeup(dlc_endpoint *e) {
    atomic_store(&e->wakeup_requested, 1);
    wake_rank(e->head);
}

/* What wait_any waits for. */
typedef struct request_set {
    dlc_request *const *requests;
    int32_t count;
} request_set;

static int any_is_done(const dlc_endpoint *e, const void *what) {
    const request_set *of = what;
    return atomic_load(&e->wakeup_requested) ||
           messages_find(e, of->requests, of->count) >= 0;
}

/* Does not poll before it sleeps: the caller (the communication thread) runs beside
 * computing threads, which polling would take cores from. */
dlc_status wait_any(dlc_endpoint *e, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which) {
    const request_set of = {requests, count};
    uint64_t since = host->now_ns();
    double left = seconds;

    for (;;) {
        int moved = 0;
        dlc_status status = e->args->check(e->args->job);
        if (status == DLC_OK)
            status = messages_move(e, &moved);
        if (status != DLC_OK)
            return status;
        int32_t found = messages_find(e, requests, count);
        if (found >= 0) {
            e->turn = found + 1;
            *which = found;
            return messages_finish(e, requests[found]);
        }
        if (atomic_exchange(&e->wakeup_requested, 0) || !(left > 0)) {
            *which = -1;
            return DLC_OK;
        }
        if (!moved)
            status = nap(e, any_is_done, &of, NULL, left);
        if (status != DLC_OK)
            return status;
        left = seconds - (double)(host->now_ns() - since) * 1e-9;
    }
}
