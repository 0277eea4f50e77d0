/* wait_any, for a thread that shares cores with computing threads: it sleeps as soon as
 * nothing moves, and wakeup ends its sleep. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ucx.h"

/* Longest sleep between two calls of args->check. */
#define NAP_NS 40000000L

dlc_status wakeup_open(dlc_endpoint *e) {
    e->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->wakeup_fd < 0)
        return host->fail(DLC_ERR_IO, "cannot create an eventfd: %s", strerror(errno));
    return DLC_OK;
}

void wakeup_close(dlc_endpoint *e) {
    if (e->wakeup_fd >= 0)
        close(e->wakeup_fd);
}

void wait_wakeup(dlc_endpoint *e) {
    uint64_t one = 1;
    while (write(e->wakeup_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* EAGAIN: the counter is full, which wakes it as well */
}

/* Consumes pending wakeups. */
static int is_woken(const dlc_endpoint *e) {
    uint64_t count;
    return read(e->wakeup_fd, &count, sizeof count) > 0;
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
    ucs_status_t armed = rails_arm(e);
    if (armed == UCS_ERR_BUSY) {
        wait_refused(e);
        return DLC_OK;
    }
    if (armed != UCS_OK)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", ucx.text_of(armed));
    long most = seconds * 1e9 < (double)NAP_NS ? (long)(seconds * 1e9) : NAP_NS;
    const struct timespec limit = {.tv_nsec = most};
    struct pollfd files[] = {{.fd = e->event_fd, .events = POLLIN},
                             {.fd = e->wakeup_fd, .events = POLLIN}};
    if (ppoll(files, 2, &limit, NULL) < 0 && errno != EINTR)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", strerror(errno));
    return DLC_OK;
}

dlc_status wait_any(dlc_endpoint *e, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which) {
    uint64_t since = host->now_ns();
    double left = seconds;

    for (;;) {
        int moved = progress(e);
        dlc_status status = check_error(e);
        if (status == DLC_OK)
            status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        int32_t found = find(e, requests, count);
        if (found >= 0) {
            int done;
            e->turn = found + 1;
            *which = found;
            status = request_test(e, requests[found], &done);
            return status == DLC_OK ? receive_settle(e, 1) : status;
        }
        if (is_woken(e) || !(left > 0)) {
            *which = -1;
            return DLC_OK;
        }
        e->refused = moved ? 0 : e->refused;
        status = moved ? DLC_OK : nap(e, left);
        if (status != DLC_OK)
            return status;
        left = seconds - (double)(host->now_ns() - since) * 1e-9;
    }
}
