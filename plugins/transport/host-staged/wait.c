/* Waiting: looks for a moment where there are cores enough, then sleeps on the
 * rank's own futex until somebody wakes it.
 *
 * No wake-up is lost. A sleeper stores asleep = 1 and then looks once more for what
 * it waits for; whoever changes that stores the change first and then loads
 * `asleep`. All four are sequentially consistent, so at least one of the two sees
 * the other's store. A waker that saw 1 sets 0 before it wakes: a sleeper that has
 * not got into the kernel by then finds another value than it expects and returns
 * at once.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "staged.h"

/* How long to sleep before the job is asked whether it ends. */
#define NAP_NS 40000000L
/* Rounds in which something moved before the job is asked. */
enum { ROUNDS = 256 };

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

static dlc_status nap(dlc_endpoint *e, condition *holds, const void *what) {
    struct timespec limit = {0, NAP_NS};
    int still = 0;

    atomic_store(&e->head->asleep, 1);
    dlc_status status = look(e, holds, what, &still);
    if (status == DLC_OK && still)
        syscall(SYS_futex, &e->head->asleep, FUTEX_WAIT, 1, &limit, NULL, 0);
    atomic_store(&e->head->asleep, 0);
    return status == DLC_OK ? e->args->check(e->args->job) : status;
}

dlc_status wait_until(dlc_endpoint *e, condition *holds, const void *what) {
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
                pause_core();
                continue;
            }
        }
        status = nap(e, holds, what);
        if (status != DLC_OK)
            return status;
        since = 0;
    }
    return DLC_OK;
}
