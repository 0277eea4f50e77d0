/* Waiting: MPI cannot wake a sleeping thread, so this polls for a moment where there
 * are enough cores, and then between sleeps that grow. */
#include <sched.h>
#include <time.h>

#include "endpoint.h"

#define NAP_LEAST_NS 2000L
#define NAP_MOST_NS 100000L
/* Polls in a row before args->check is called. */
enum { ROUNDS = 256 };
/* Times to yield the core before the first sleep. */
enum { YIELDS = 16 };

typedef struct pause_state {
    uint64_t since; /* when it became idle; 0: it is not */
    int yields;
    long nap_ns;
} pause_state;

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* One step of waiting; returns 1 if it slept. */
static int wait_step(const dlc_endpoint *e, pause_state *p) {
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

dlc_status wait_until(dlc_endpoint *e, condition *poll_once, void *what) {
    pause_state p = {.nap_ns = NAP_LEAST_NS};
    int holds = 0;

    for (int round = 1;; round++) {
        dlc_status status = poll_once(e, what, &holds);
        if (status != DLC_OK || holds)
            return status;
        if (wait_step(e, &p) || round % ROUNDS == 0) {
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

static dlc_status poll_one(dlc_endpoint *e, void *what, int *holds) {
    const one_request *one = what;
    int code = MPI_Test(one->request, holds, MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS ? DLC_OK : world_failed(e, code, one->what);
}

dlc_status wait_for(dlc_endpoint *e, MPI_Request *request, const char *what) {
    one_request one = {request, what};
    return wait_until(e, poll_one, &one);
}
