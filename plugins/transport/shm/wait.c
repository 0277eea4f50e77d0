/* Waiting: looks for a moment, then sleeps on the rank's own futex until somebody
 * wakes it. Where ranks share cores, each look lets the others have this one first:
 * among ranks that are all in one exchange that is several times faster than to sleep,
 * and where others compute the moment is over when this rank is back.
 *
 * No wake-up is lost. A sleeper stores asleep = 1 and then looks once more for what
 * it waits for; whoever changes that stores the change first and then loads
 * `asleep`. All four are sequentially consistent, so at least one of the two sees
 * the other's store. A waker that saw 1 sets 0 before it wakes: a sleeper that has
 * not got into the kernel by then finds another value than it expects and returns
 * at once.
 *
 * A sleeper that waits for marks says for which, and is left asleep until all of them
 * are there: what it waits for is written before `asleep`, so a waker whose mark its
 * last look missed finds the whole of it, and the last to come of several sees the
 * others' marks.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

/* How long to sleep before the job is asked whether it ends. */
#define NAP_NS 40000000L
/* Rounds in which something moved before the job is asked. */
enum { ROUNDS = 256 };
/* Looks at the condition between two looks at everything. */
enum { SPINS = 16 };

void wake(head *sleeper) {
    if (atomic_load(&sleeper->asleep) && atomic_exchange(&sleeper->asleep, 0))
        syscall(SYS_futex, &sleeper->asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* One look at everything: DLC_OK and *still = 1 when nothing moved. */
static dlc_status look(dlc_endpoint *e, condition *holds, const void *what,
                       int *still) {
    int moved = 0;
    dlc_status status = messages_move(e, &moved);
    *still = !moved && !holds(e, what);
    return status;
}

/* In what it waits for, so that nobody wakes it for less; before `asleep` is set. */
static void tell_goal(head *h, const goal *aim) {
    atomic_store(&h->end, aim ? aim->end : 0);
    if (aim) {
        atomic_store(&h->mark, aim->mark);
        atomic_store(&h->first, aim->first);
        atomic_store(&h->steps, aim->steps);
    }
}

/* For so many seconds, but never long. */
static struct timespec nap_of(double seconds) {
    long most = seconds * 1e9 < (double)NAP_NS ? (long)(seconds * 1e9) : NAP_NS;
    return (struct timespec){0, most};
}

static dlc_status nap(dlc_endpoint *e, condition *holds, const void *what,
                      const goal *aim, double seconds) {
    struct timespec limit = nap_of(seconds);
    int still = 0;

    tell_goal(e->head, aim);
    atomic_store(&e->head->asleep, 1);
    dlc_status status = look(e, holds, what, &still);
    if (status == DLC_OK && still)
        syscall(SYS_futex, &e->head->asleep, FUTEX_WAIT, 1, &limit, NULL, 0);
    atomic_store(&e->head->asleep, 0);
    return status == DLC_OK ? e->args->check(e->args->job) : status;
}

/* A moment of looking at nothing but the condition. */
static void spin(const dlc_endpoint *e, condition *holds, const void *what) {
    if (e->crowded)
        (void)sched_yield();
    for (int i = 0; i < SPINS && !holds(e, what); i++)
        pause_core();
}

dlc_status wait_until(dlc_endpoint *e, condition *holds, const void *what,
                      const goal *aim) {
    uint64_t since = 0; /* when it began to stand still; 0: it doesn't */

    for (int round = 1; !holds(e, what); round++) {
        int still = 0;
        dlc_status status = look(e, holds, what, &still);
        if (status == DLC_OK && round % ROUNDS == 0)
            status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        if (!still) {
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

/* ---- For any of several ------------------------------------------------------ */

void nudge(dlc_endpoint *e) {
    atomic_store(&e->nudged, 1);
    wake(e->head);
}

/* What wait_any waits for. */
typedef struct any {
    dlc_request *const *requests;
    int32_t count;
} any;

static int any_is_done(const dlc_endpoint *e, const void *what) {
    const any *of = what;
    return atomic_load(&e->nudged) || messages_find(e, of->requests, of->count) >= 0;
}

/* Who is nudged, and who waits for a peer's messages, computes beside: it does not
 * look before it sleeps, which would take the core from those that it waits for. */
dlc_status wait_any(dlc_endpoint *e, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which) {
    const any of = {requests, count};
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
        if (atomic_exchange(&e->nudged, 0) || !(left > 0)) {
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
