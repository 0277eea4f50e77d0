/* Waiting. MPI has nothing that wakes a sleeper, so this looks for a moment where
 * there are cores enough, and then between naps that grow. */
#include <sched.h>
#include <time.h>

#include "endpoint.h"

#define NAP_LEAST_NS 2000L
#define NAP_MOST_NS 100000L
/* Looks in a row before the job is asked whether it ends. */
enum { ROUNDS = 256 };
/* Turns handed to others that want the core, before the first nap. */
enum { YIELDS = 16 };

typedef struct pause_state {
    uint64_t since; /* when it began to stand still; 0: it doesn't */
    int yields;
    long nap_ns;
} pause_state;

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* One step of waiting; 1: it slept. */
static int hold_on(const dlc_endpoint *e, pause_state *p) {
    if (e->spin_ns > 0) {
        uint64_t now = host->now_ns();
        p->since = p->since ? p->since : now;
        if (now - p->since < e->spin_ns) {
            pause_core();
            return 0;
        }
    }
    if (p->yields < YIELDS) {
        p->yields++;
        sched_yield();
        return 0;
    }
    struct timespec nap = {0, p->nap_ns};
    nanosleep(&nap, NULL);
    p->nap_ns = p->nap_ns * 2 < NAP_MOST_NS ? p->nap_ns * 2 : NAP_MOST_NS;
    return 1;
}

dlc_status wait_until(dlc_endpoint *e, condition *look, void *what) {
    pause_state p = {.nap_ns = NAP_LEAST_NS};
    int holds = 0;

    for (int round = 1;; round++) {
        dlc_status status = look(e, what, &holds);
        if (status != DLC_OK || holds)
            return status;
        if (hold_on(e, &p) || round % ROUNDS == 0) {
            status = e->args->check(e->args->job);
            if (status != DLC_OK) {
                e->failed = 1;
                return status;
            }
        }
    }
}

typedef struct one_request {
    MPI_Request *request;
    const char *what;
} one_request;

static dlc_status look_at_one(dlc_endpoint *e, void *what, int *holds) {
    const one_request *one = what;
    int code = MPI_Test(one->request, holds, MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS ? DLC_OK : world_failed(e, code, one->what);
}

dlc_status wait_for(dlc_endpoint *e, MPI_Request *request, const char *what) {
    one_request one = {request, what};
    return wait_until(e, look_at_one, &one);
}
