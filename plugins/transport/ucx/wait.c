/* Moving on, and waiting: looks for a moment where there are cores enough, then sleeps
 * on UCX's event file until something comes. UCX arms it only when nothing is there to
 * be done, so no event is lost. */
#include <errno.h>
#include <poll.h>

#include "ucx.h"

/* How long to sleep before the job is asked whether it ends. */
enum { NAP_MS = 40 };
/* Rounds in which something moved before the job is asked. */
enum { ROUNDS = 256 };
/* Rounds in which nothing moved before the clock is asked: it takes as long as one. */
enum { LOOKS = 16 };

dlc_status move_on(dlc_endpoint *e, int *moved) {
    *moved = ucx.worker_progress(e->worker) != 0;
    for (int32_t r = 0; r < e->ranks && e->queued > 0; r++) {
        dlc_status status = chunks_push(e, r, moved);
        if (status != DLC_OK)
            return status;
    }
    if (e->broken != UCS_OK)
        return endpoint_lost(e, e->broken_peer, e->broken);
    return e->failed;
}

static dlc_status nap(dlc_endpoint *e) {
    ucs_status_t armed = ucx.worker_arm(e->worker);
    if (armed == UCS_ERR_BUSY)
        return DLC_OK;
    if (armed != UCS_OK)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: %s", ucx.text_of(armed));
    struct pollfd file = {.fd = e->wake_fd, .events = POLLIN};
    if (poll(&file, 1, NAP_MS) < 0 && errno != EINTR)
        return host->fail(DLC_ERR_INTERNAL, "UCX cannot wait: poll fails");
    return e->args->check(e->args->job);
}

dlc_status wait_for(dlc_endpoint *e, const int *done) {
    uint64_t since = 0; /* when it was first seen to stand still */
    unsigned still = 0; /* rounds since something moved */

    for (unsigned round = 1; !*done; round++) {
        int moved = 0;
        dlc_status status = move_on(e, &moved);
        if (status == DLC_OK && round % ROUNDS == 0)
            status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        still = moved ? 0 : still + 1;
        if (*done || moved || (e->spin_ns > 0 && still % LOOKS != 0))
            continue;
        uint64_t now = host->now_ns();
        if (still == LOOKS)
            since = now;
        if (e->spin_ns > 0 && now - since < e->spin_ns)
            continue;
        status = nap(e);
        if (status != DLC_OK)
            return status;
        still = 0;
    }
    return DLC_OK;
}
