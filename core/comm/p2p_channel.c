/* The P2P channel: forwards to the send, recv, test and wait_any of a transport's
 * endpoint. Transports without wait_any are polled, with an eventfd for wakeup. */
#include "comm/p2p_channel.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/team.h"
#include "plugin/answers.h"

/* The pause between two polls of all requests, for transports without wait_any: this
 * fraction of the time since the last progress, so that a message is found after little
 * more than the time it took to arrive, and long idle times cost little CPU. */
enum { PAUSE_FRACTION = 16 };
#define MIN_PAUSE_NS UINT64_C(20000)
#define MAX_PAUSE_NS UINT64_C(4000000)

struct dlc_p2p {
    dlc_p2p_channel table;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_team *team;
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    int wakeup_fd;          /* an eventfd; ends the pause between two polls */
    int32_t next;           /* the request to test first, so that none starves */
    uint64_t last_progress; /* when a message was last sent or a request done */
};

/* ---- Services for the transport ------------------------------------------------ */

static dlc_status check_p2p(void *context) {
    dlc_p2p *p2p = context;
    if (atomic_load_explicit(&p2p->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the P2P channel was cancelled");
    return p2p->check(p2p->job);
}

static dlc_status p2p_all_gather(void *context, const void *mine, size_t bytes,
                                 void *all) {
    dlc_p2p *p2p = context;
    return p2p->oob_all_gather(p2p->job, mine, bytes, all);
}

/* ---- The channel's calls --------------------------------------------------------- */

/* Of the caller, which may be a plugin. */
static dlc_status check_peer(dlc_p2p *p2p, int32_t peer) {
    if (peer < 0 || peer >= p2p->table.ranks || peer == p2p->table.rank)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "rank %d exchanges a message with rank %d, of %d ranks",
                        p2p->table.rank, peer, p2p->table.ranks);
    return check_p2p(p2p);
}

static dlc_status p2p_send(void *context, int32_t peer, dlc_tag tag, const void *buffer,
                           size_t bytes, dlc_request **request) {
    dlc_p2p *p2p = context;
    const dlc_team *team = p2p->team;
    DLC_TRY(check_peer(p2p, peer));
    p2p->last_progress = dlc_now_ns();
    return team->ops->send(team->endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status p2p_recv(void *context, int32_t peer, dlc_tag tag, void *buffer,
                           size_t bytes, dlc_request **request) {
    const dlc_team *team = ((dlc_p2p *)context)->team;
    DLC_TRY(check_peer(context, peer));
    return team->ops->recv(team->endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status p2p_test(void *context, dlc_request *request, int *done) {
    const dlc_team *team = ((dlc_p2p *)context)->team;
    DLC_TRY(check_p2p(context));
    return team->ops->test(team->endpoint, request, done);
}

/* Tests each request once; *which is -1 if none is done. */
static dlc_status test_all(dlc_p2p *p2p, dlc_request *const *requests, int32_t count,
                           int32_t *which) {
    const dlc_team *team = p2p->team;
    int32_t first = p2p->next < count ? p2p->next : 0;

    *which = -1;
    for (int32_t k = 0; k < count; k++) {
        int32_t i = k < count - first ? first + k : first + k - count;
        int done = 0;
        if (requests[i])
            DLC_TRY(DLC_ASK(team->ops, "test",
                            team->ops->test(team->endpoint, requests[i], &done)));
        if (done) {
            p2p->next = i + 1;
            p2p->last_progress = dlc_now_ns();
            *which = i;
            return DLC_OK;
        }
    }
    return DLC_OK;
}

/* Sleeps for at most `left` seconds; sets *woken if p2p_wakeup was called. */
static void sleep_until_next_poll(dlc_p2p *p2p, double left, int *woken) {
    uint64_t pause = (dlc_now_ns() - p2p->last_progress) / PAUSE_FRACTION;
    pause = pause < MIN_PAUSE_NS   ? MIN_PAUSE_NS
            : pause > MAX_PAUSE_NS ? MAX_PAUSE_NS
                                   : pause;
    if (left * 1e9 < (double)pause)
        pause = (uint64_t)(left * 1e9);
    const struct timespec time = {.tv_nsec = (long)pause};
    struct pollfd wakeup = {.fd = p2p->wakeup_fd, .events = POLLIN};
    uint64_t wakeups;
    if (ppoll(&wakeup, 1, &time, NULL) > 0)
        *woken = read(p2p->wakeup_fd, &wakeups, sizeof wakeups) > 0;
}

/* Whether the transport can block until a request is done. */
static int can_block(const dlc_p2p *p2p) {
    const dlc_transport_ops *ops = p2p->team->ops;
    return DLC_CAN(ops, wakeup) && ops->wait_any; /* a field before wakeup */
}

static dlc_status p2p_wait_any(void *context, dlc_request *const *requests,
                               int32_t count, double seconds, int32_t *which) {
    dlc_p2p *p2p = context;
    const dlc_team *team = p2p->team;
    uint64_t began = dlc_now_ns();
    int woken = 0;

    if (can_block(p2p)) {
        DLC_TRY(check_p2p(p2p));
        DLC_TRY(DLC_ASK(
            team->ops, "wait_any",
            team->ops->wait_any(team->endpoint, requests, count, seconds, which)));
        return *which < count
                   ? DLC_OK
                   : dlc_answer_refuse(team->ops, "wait_any reports request %d of %d",
                                       *which, count);
    }
    for (;;) {
        int32_t found = -1;
        DLC_TRY(team->args.check(team->args.job));
        DLC_TRY(test_all(p2p, requests, count, &found));
        double left = seconds - dlc_since(began);
        if (found >= 0 || woken || !(left > 0)) {
            *which = found;
            return DLC_OK;
        }
        sleep_until_next_poll(p2p, left, &woken);
    }
}

static void p2p_wakeup(void *context) {
    dlc_p2p *p2p = context;
    const dlc_team *team = p2p->team;
    uint64_t one = 1;
    if (!team)
        return; /* cancelled: there is no waiting call */
    if (can_block(p2p)) {
        team->ops->wakeup(team->endpoint);
        return;
    }
    while (write(p2p->wakeup_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* a full counter has woken the reader already */
}

/* Closes the endpoint. `check` must not fail meanwhile, because some transports end
 * with a shutdown handshake that a failing check would skip. */
static void close_team(dlc_p2p *p2p) {
    atomic_store_explicit(&p2p->cancelled, 0, memory_order_relaxed);
    dlc_team_close(p2p->team);
    p2p->team = NULL;
}

static void p2p_cancel(void *context) {
    close_team(context);
    dlc_p2p_cancel(context);
}

/* ---- Opening and closing ----------------------------------------------------- */

/* Checks that the transport connects all ranks: one that was chosen between the nodes
 * may not connect the ranks of one node. */
static dlc_status check_connects_all(const dlc_p2p *p2p, const dlc_comm_args *args,
                                     const dlc_comm_level *level) {
    dlc_transport_args asked = {.size = sizeof asked,
                                .rank = args->rank,
                                .ranks = args->ranks,
                                .rank_info = args->rank_info,
                                .settings = level->settings,
                                .device_ops = args->device_ops,
                                .device = p2p->device};
    char reason[256] = "";
    dlc_transport_prediction prediction = {.size = sizeof prediction};

    DLC_TRY(dlc_answer_prediction(level->feature, &asked, reason, sizeof reason,
                                  &prediction));
    if (prediction.bandwidth > 0)
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_CONFIG,
        "this job sends messages between all ranks, which transport %s cannot do (%s); "
        "choose another with --transport",
        level->feature->name, reason);
}

static dlc_status open_p2p_team(dlc_p2p *p2p, const dlc_comm_args *args,
                                int32_t *job_rank) {
    const dlc_comm_level *level = &args->level[args->levels - 1];
    dlc_device_args device = args->device;

    device.threads = 1; /* the calling thread */
    device.cpus = NULL;
    DLC_TRY(args->device_ops->open(&device, &p2p->device));
    DLC_TRY(check_connects_all(p2p, args, level));
    for (int32_t r = 0; r < args->ranks; r++)
        job_rank[r] = dlc_comm_job_rank(args, r);
    dlc_team_args team = {.feature = level->feature,
                          .settings = level->settings,
                          .rank = args->rank,
                          .ranks = args->ranks,
                          .rank_info = args->rank_info,
                          .device_ops = args->device_ops,
                          .device = p2p->device,
                          .any_order = 1, /* it reduces nothing */
                          .job = p2p,
                          .oob_all_gather = p2p_all_gather,
                          .check = check_p2p,
                          .job_rank = job_rank,
                          .on_wait = args->on_wait,
                          .progress_context = args->progress_context};
    return dlc_team_open(&team, &p2p->team);
}

dlc_status dlc_p2p_open(const dlc_comm_args *args, dlc_p2p **p2p) {
    if (args->ranks < 2 || args->levels < 1 || !args->level[args->levels - 1].feature)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "a P2P channel of %d ranks, or without a transport",
                        args->ranks);
    dlc_p2p *made = dlc_alloc(1, sizeof *made);
    int32_t *job_rank = dlc_alloc((size_t)args->ranks, sizeof *job_rank);
    if (!made || !job_rank) {
        dlc_free(job_rank);
        dlc_free(made);
        return DLC_ERR_NOMEM;
    }
    made->device_ops = args->device_ops;
    made->job = args->job;
    made->check = args->check;
    made->oob_all_gather = args->oob_all_gather;
    made->last_progress = dlc_now_ns();
    made->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dlc_status status = made->wakeup_fd < 0
                            ? dlc_fail(DLC_ERR_IO,
                                       "cannot create an eventfd for a P2P channel: %s",
                                       strerror(errno))
                            : open_p2p_team(made, args, job_rank);
    dlc_free(job_rank);
    if (status != DLC_OK) {
        dlc_p2p_close(made);
        return status;
    }
    made->table = (dlc_p2p_channel){.size = sizeof made->table,
                                    .context = made,
                                    .rank = args->rank,
                                    .ranks = args->ranks,
                                    .node = made->team->nodes.node,
                                    .send = p2p_send,
                                    .recv = p2p_recv,
                                    .test = p2p_test,
                                    .wait_any = p2p_wait_any,
                                    .check = check_p2p,
                                    .wakeup = p2p_wakeup,
                                    .cancel = p2p_cancel};
    dlc_p2p_await(made, DLC_TEAM_ANYONE);
    *p2p = made;
    return DLC_OK;
}

void dlc_p2p_await(dlc_p2p *p2p, int32_t peer) {
    if (p2p->team)
        dlc_team_await(p2p->team, peer);
}

void dlc_p2p_close(dlc_p2p *p2p) {
    if (!p2p)
        return;
    close_team(p2p);
    if (p2p->device)
        p2p->device_ops->close(p2p->device);
    if (p2p->wakeup_fd >= 0)
        close(p2p->wakeup_fd);
    dlc_free(p2p);
}

const dlc_p2p_channel *dlc_p2p_table(const dlc_p2p *p2p) {
    return &p2p->table;
}

void dlc_p2p_cancel(dlc_p2p *p2p) {
    if (!p2p)
        return;
    atomic_store_explicit(&p2p->cancelled, 1, memory_order_relaxed);
    p2p_wakeup(p2p);
}
