/* Waiting for any of several requests, as a thread does that others compute beside: it
 * sleeps as soon as nothing moves, and can be called from its sleep. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ucx.h"

/* How long to sleep before the job is asked whether it ends. */
#define NAP_NS 40000000L

dlc_status any_open(dlc_endpoint *e) {
    e->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->nudge_fd < 0)
        return host->fail(DLC_ERR_IO, "no descriptor to be woken by: %s",
                          strerror(errno));
    return DLC_OK;
}

void any_close(dlc_endpoint *e) {
    if (e->nudge_fd >= 0)
        close(e->nudge_fd);
}

void nudge(dlc_endpoint *e) {
    uint64_t one = 1;
    while (write(e->nudge_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* where it is full, it wakes */
}

/* Takes in what it was nudged for. */
static int is_nudged(const dlc_endpoint *e) {
    uint64_t nudges;
    return read(e->nudge_fd, &nudges, sizeof nudges) > 0;
}

static int32_t find(const dlc_endpoint *e, dlc_request *const *requests,
                    int32_t count) {
    int32_t first = e->turn < count ? e->turn : 0;
    for (int32_t k = 0; k < count; k++) {
        int32_t i = k < count - first ? first + k : first + k - count;
        if (requests[i] && requests[i]->done)
            return i;
    }
    return -1;
}

static dlc_status nap(dlc_endpoint *e, double seconds) {
    ucs_status_t armed = ucx.worker_arm(e->worker);
    if (armed == UCS_ERR_BUSY)
        return DLC_OK;
    if (armed != UCS_OK)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", ucx.text_of(armed));
    long most = seconds * 1e9 < (double)NAP_NS ? (long)(seconds * 1e9) : NAP_NS;
    const struct timespec limit = {.tv_nsec = most};
    struct pollfd files[] = {{.fd = e->wake_fd, .events = POLLIN},
                             {.fd = e->nudge_fd, .events = POLLIN}};
    if (ppoll(files, 2, &limit, NULL) < 0 && errno != EINTR)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", strerror(errno));
    return DLC_OK;
}

dlc_status wait_any(dlc_endpoint *e, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which) {
    uint64_t since = host->now_ns();
    double left = seconds;

    for (;;) {
        int moved = move_on(e);
        dlc_status status = trouble(e);
        if (status == DLC_OK)
            status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        int32_t found = find(e, requests, count);
        if (found >= 0) {
            int done;
            e->turn = found + 1;
            *which = found;
            return request_test(e, requests[found], &done);
        }
        if (is_nudged(e) || !(left > 0)) {
            *which = -1;
            return DLC_OK;
        }
        status = moved ? DLC_OK : nap(e, left);
        if (status != DLC_OK)
            return status;
        left = seconds - (double)(host->now_ns() - since) * 1e-9;
    }
}
