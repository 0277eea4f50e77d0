/* See mail.h. */
#include "comm/mail.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/team.h"

/* Over a transport that cannot wait for any of several requests, between two looks at
 * all of them: a part of the time in which nothing was done, so that a message waits
 * little longer than it took to come, and a long silence costs little. */
enum { PART = 16 };
#define SHORTEST_PAUSE_NS UINT64_C(20000)
#define LONGEST_PAUSE_NS UINT64_C(4000000)

struct dlc_mailbox {
    dlc_mail table;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_team *team;
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    int bell;       /* an eventfd; who rests hears it */
    int32_t next;   /* the request to look at first, so that each gets its turn */
    uint64_t moved; /* when something was last sent, or was done */
};

/* ---- Services for the transport ------------------------------------------------ */

static dlc_status check(void *context) {
    dlc_mailbox *mailbox = context;
    if (atomic_load_explicit(&mailbox->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the solver's messages were stopped");
    return mailbox->check(mailbox->job);
}

static dlc_status allgather(void *context, const void *mine, size_t bytes, void *all) {
    dlc_mailbox *mailbox = context;
    return mailbox->gather(mailbox->job, mine, bytes, all);
}

/* ---- For the solver ---------------------------------------------------------- */

static dlc_status mail_send(void *context, int32_t peer, dlc_tag tag,
                            const void *buffer, size_t bytes, dlc_request **request) {
    dlc_mailbox *mailbox = context;
    const dlc_team *team = mailbox->team;
    DLC_TRY(check(context));
    mailbox->moved = dlc_now_ns();
    return team->ops->send(team->endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status mail_recv(void *context, int32_t peer, dlc_tag tag, void *buffer,
                            size_t bytes, dlc_request **request) {
    const dlc_team *team = ((dlc_mailbox *)context)->team;
    DLC_TRY(check(context));
    return team->ops->recv(team->endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status mail_test(void *context, dlc_request *request, int *done) {
    const dlc_team *team = ((dlc_mailbox *)context)->team;
    DLC_TRY(check(context));
    return team->ops->test(team->endpoint, request, done);
}

/* One look at each; *which is -1 where none is done. */
static dlc_status look(dlc_mailbox *mailbox, dlc_request *const *requests,
                       int32_t count, int32_t *which) {
    const dlc_team *team = mailbox->team;
    int32_t first = mailbox->next < count ? mailbox->next : 0;

    *which = -1;
    for (int32_t k = 0; k < count; k++) {
        int32_t i = k < count - first ? first + k : first + k - count;
        int done = 0;
        if (requests[i])
            DLC_TRY(team->ops->test(team->endpoint, requests[i], &done));
        if (done) {
            mailbox->next = i + 1;
            mailbox->moved = dlc_now_ns();
            *which = i;
            return DLC_OK;
        }
    }
    return DLC_OK;
}

/* Sleeps, but not for longer than `left` seconds; *woken: somebody called. */
static void rest(dlc_mailbox *mailbox, double left, int *woken) {
    uint64_t pause = (dlc_now_ns() - mailbox->moved) / PART;
    pause = pause < SHORTEST_PAUSE_NS  ? SHORTEST_PAUSE_NS
            : pause > LONGEST_PAUSE_NS ? LONGEST_PAUSE_NS
                                       : pause;
    if (left * 1e9 < (double)pause)
        pause = (uint64_t)(left * 1e9);
    const struct timespec time = {.tv_nsec = (long)pause};
    struct pollfd bell = {.fd = mailbox->bell, .events = POLLIN};
    uint64_t rings;
    if (ppoll(&bell, 1, &time, NULL) > 0)
        *woken = read(mailbox->bell, &rings, sizeof rings) > 0;
}

/* Is the transport itself woken by what comes? */
static int sleeps(const dlc_mailbox *mailbox) {
    const dlc_transport_ops *ops = mailbox->team->ops;
    return DLC_CAN(ops, nudge) && ops->wait_any; /* which lies before it */
}

static dlc_status mail_wait_any(void *context, dlc_request *const *requests,
                                int32_t count, double seconds, int32_t *which) {
    dlc_mailbox *mailbox = context;
    const dlc_team *team = mailbox->team;
    uint64_t began = dlc_now_ns();
    int woken = 0;

    if (sleeps(mailbox)) {
        DLC_TRY(check(mailbox));
        return team->ops->wait_any(team->endpoint, requests, count, seconds, which);
    }
    for (;;) {
        int32_t found = -1;
        DLC_TRY(check(mailbox));
        DLC_TRY(look(mailbox, requests, count, &found));
        double left = seconds - dlc_since(began);
        if (found >= 0 || woken || !(left > 0)) {
            *which = found;
            return DLC_OK;
        }
        rest(mailbox, left, &woken);
    }
}

static void mail_wake(void *context) {
    dlc_mailbox *mailbox = context;
    const dlc_team *team = mailbox->team;
    uint64_t one = 1;
    if (!team)
        return; /* given up: nobody waits any more */
    if (sleeps(mailbox)) {
        team->ops->nudge(team->endpoint);
        return;
    }
    while (write(mailbox->bell, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* where it is full, it rings */
}

/* The transport may say goodbye to its peers, which it does not when it is told that
 * all has ended. */
static void close_team(dlc_mailbox *mailbox) {
    atomic_store_explicit(&mailbox->cancelled, 0, memory_order_relaxed);
    dlc_team_close(mailbox->team);
    mailbox->team = NULL;
}

static void mail_give_up(void *context) {
    close_team(context);
    dlc_mailbox_cancel(context);
}

/* ---- Opening and closing ----------------------------------------------------- */

/* A transport that was chosen between nodes need not reach the ranks of one node. */
static dlc_status check_reach(const dlc_mailbox *mailbox, const dlc_comm_args *args,
                              const dlc_comm_level *level) {
    const dlc_transport_ops *ops = level->feature->ops;
    dlc_transport_args asked = {.size = sizeof asked,
                                .rank = args->rank,
                                .ranks = args->ranks,
                                .places = args->places,
                                .settings = level->settings,
                                .device_ops = args->device_ops,
                                .device = mailbox->device};
    char reason[256] = "";
    int32_t score = 0;

    DLC_TRY(ops->score(&asked, &score, reason, sizeof reason));
    if (score > 0)
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_CONFIG,
        "the solver sends messages between all ranks, for which transport %s "
        "cannot be used (%s): name another with --transport",
        level->feature->name, reason);
}

static dlc_status open_team(dlc_mailbox *mailbox, const dlc_comm_args *args) {
    const dlc_comm_level *level = args->between.feature ? &args->between : &args->level;
    dlc_device_args device = args->device;

    device.threads = 1; /* as in comm.c */
    device.cpus = NULL;
    DLC_TRY(args->device_ops->open(&device, &mailbox->device));
    DLC_TRY(check_reach(mailbox, args, level));
    dlc_team_args team = {.feature = level->feature,
                          .settings = level->settings,
                          .rank = args->rank,
                          .ranks = args->ranks,
                          .places = args->places,
                          .device_ops = args->device_ops,
                          .device = mailbox->device,
                          .any_order = 1, /* it sums nothing */
                          .job = mailbox,
                          .allgather = allgather,
                          .check = check};
    return dlc_team_open(&team, &mailbox->team);
}

dlc_status dlc_mailbox_open(const dlc_comm_args *args, dlc_mailbox **mailbox) {
    if (args->ranks < 2 || (!args->level.feature && !args->between.feature))
        return dlc_fail(DLC_ERR_INTERNAL, "%d ranks cannot write to each other",
                        args->ranks);
    dlc_mailbox *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->device_ops = args->device_ops;
    made->job = args->job;
    made->check = args->check;
    made->gather = args->allgather;
    made->moved = dlc_now_ns();
    made->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dlc_status status = made->bell < 0
                            ? dlc_fail(DLC_ERR_IO, "no descriptor for a mailbox: %s",
                                       strerror(errno))
                            : open_team(made, args);
    if (status != DLC_OK) {
        dlc_mailbox_close(made);
        return status;
    }
    made->table = (dlc_mail){.size = sizeof made->table,
                             .context = made,
                             .rank = args->rank,
                             .ranks = args->ranks,
                             .node = made->team->nodes.node,
                             .send = mail_send,
                             .recv = mail_recv,
                             .test = mail_test,
                             .wait_any = mail_wait_any,
                             .check = check,
                             .wake = mail_wake,
                             .give_up = mail_give_up};
    *mailbox = made;
    return DLC_OK;
}

void dlc_mailbox_close(dlc_mailbox *mailbox) {
    if (!mailbox)
        return;
    close_team(mailbox);
    if (mailbox->device)
        mailbox->device_ops->close(mailbox->device);
    if (mailbox->bell >= 0)
        close(mailbox->bell);
    dlc_free(mailbox);
}

const dlc_mail *dlc_mailbox_table(const dlc_mailbox *mailbox) {
    return &mailbox->table;
}

void dlc_mailbox_cancel(dlc_mailbox *mailbox) {
    if (!mailbox)
        return;
    atomic_store_explicit(&mailbox->cancelled, 1, memory_order_relaxed);
    mail_wake(mailbox);
}
