/* The agent's poll loop: relays frames, takes heartbeats, forwards signals, and checks
 * that the hub is still there. Its clock is dlc_awake_ns: the hub may have been stopped
 * with it. */
#include "job/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/channel.h"
#include "job/signals.h"

typedef struct agent {
    const dlc_agent_args *args;
    dlc_channel rank, hub;
    int signals;
    pid_t parent; /* as in dlc_launch */
    dlc_heartbeat_last last;
    uint64_t last_sent;  /* when a heartbeat was last sent */
    uint64_t last_heard; /* when anything last came from the hub */
    uint64_t kill_at;    /* when the rank is killed; 0: never */
    int running;
    int hub_lost; /* the hub is gone; the rank was sent the abort notice */
    int done;     /* the hub has sent the exit code */
    int code;
} agent;

/* ---- The rank ------------------------------------------------------------------ */

static void kill_rank(agent *a, int signal) {
    if (a->running)
        kill(a->args->child, signal);
    if (signal == SIGKILL)
        a->kill_at = 0;
}

static void send_heartbeat(agent *a) {
    dlc_heartbeat heartbeat = dlc_heartbeat_take(a->args->child, a->args->activity,
                                                 &a->last);
    dlc_frame frame = {.kind = DLC_FRAME_HEARTBEAT, .bytes = sizeof heartbeat};
    dlc_channel_send(&a->hub, &frame, &heartbeat);
    a->last_sent = dlc_awake_ns();
}

static void read_rank(agent *a) {
    while (dlc_channel_read(&a->rank))
        dlc_channel_send(&a->hub, &a->rank.frame, a->rank.payload.bytes);
}

static void start_grace_period(agent *a) {
    if (!a->kill_at && a->running)
        a->kill_at = dlc_awake_ns() + DLC_GRACE_NS;
}

static void lose_hub(agent *a, const char *why) {
    char text[512], activity[DLC_ACTIVITY_TEXT];
    if (a->hub_lost || a->done)
        return;
    a->hub_lost = 1;
    dlc_channel_close(&a->hub);
    dlc_activity_text(&a->args->activity->current, activity);
    snprintf(text, sizeof text,
             "rank %d (pid %d) has lost the hub%s: rank 0's process at %s %s",
             a->args->rank, (int)a->args->child, activity, a->args->hub_address, why);
    if (a->running)
        dlc_error("%s", text);
    dlc_frame frame = {
        .kind = DLC_FRAME_ABORT, .number = DLC_ERR_PEER, .bytes = strlen(text)};
    dlc_channel_send(&a->rank, &frame, text);
    start_grace_period(a);
}

static void flush_hub(agent *a) {
    if (dlc_channel_flush(&a->hub) != DLC_OK)
        lose_hub(a, dlc_detail());
}

/* Without its channel the rank ends by itself. */
static void flush_rank(agent *a) {
    if (dlc_channel_flush(&a->rank) != DLC_OK)
        dlc_error("rank %d (pid %d) %s", a->args->rank, (int)a->args->child,
                  dlc_detail());
}

/* Forwards everything that the rank has sent before reporting its end; an incomplete
 * frame is dropped. */
static void check_exit(agent *a) {
    siginfo_t how = {0};
    if (!a->running ||
        waitid(P_PID, (id_t)a->args->child, &how, WEXITED | WNOHANG | WNOWAIT) ||
        !how.si_pid)
        return;
    read_rank(a);
    send_heartbeat(a);
    dlc_frame frame = {.kind = DLC_FRAME_ENDED,
                       .number = how.si_status,
                       .size = how.si_code != CLD_EXITED};
    dlc_channel_send(&a->hub, &frame, NULL);
    flush_hub(a);
    dlc_channel_close(&a->rank);
    a->running = 0;
    a->kill_at = 0;
}

/* ---- The hub ------------------------------------------------------------------- */

static void handle_hub_frame(agent *a) {
    const dlc_frame *frame = &a->hub.frame;
    switch (frame->kind) {
    case DLC_FRAME_HEARTBEAT:
        break;
    case DLC_FRAME_KILL:
        kill_rank(a, frame->number);
        break;
    case DLC_FRAME_DONE:
        a->done = 1;
        a->code = frame->number;
        kill_rank(a, SIGKILL); /* the job is over */
        break;
    case DLC_FRAME_ABORT:
        start_grace_period(a);
        dlc_channel_send(&a->rank, frame, a->hub.payload.bytes);
        break;
    default:
        dlc_channel_send(&a->rank, frame, a->hub.payload.bytes);
    }
}

static void read_hub(agent *a) {
    while (!a->done && dlc_channel_read(&a->hub)) {
        a->last_heard = dlc_awake_ns();
        handle_hub_frame(a);
    }
    if (a->hub.fd < 0)
        lose_hub(a, "is gone");
}

/* ---- The loop ------------------------------------------------------------------ */

static void forward_signal(agent *a, int signal) {
    dlc_frame frame = {.kind = DLC_FRAME_SIGNAL, .number = signal};
    dlc_channel_send(&a->hub, &frame, NULL);
}

static void read_signals(agent *a) {
    struct signalfd_siginfo info;
    while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            check_exit(a);
            continue;
        }
        if (info.ssi_signo == SIGTSTP)
            continue; /* to the other ranks, stopping would look like a hang */
        forward_signal(a, (int)info.ssi_signo);
    }
}

static void check_timeouts(agent *a) {
    uint64_t now = dlc_awake_ns();
    if (now - a->last_sent >= DLC_HEARTBEAT_NS && a->running) {
        check_exit(a); /* SIGCHLD may have gone to another thread */
        if (dlc_launcher_is_gone(&a->parent))
            forward_signal(a, SIGTERM);
        if (a->running)
            send_heartbeat(a);
    }
    double silent = dlc_between(a->last_heard, now);
    if (a->args->hang_timeout > 0 && silent > a->args->hang_timeout) {
        char text[128];
        snprintf(
            text, sizeof text,
            "has not been heard from for %.1f s: it, its machine or the network is "
            "down",
            silent);
        lose_hub(a, text);
    }
    if (a->kill_at && now >= a->kill_at) {
        dlc_warn("rank %d (pid %d) did not end in time: killing it", a->args->rank,
                 (int)a->args->child);
        kill_rank(a, SIGKILL);
    }
}

static int poll_timeout(const agent *a) {
    uint64_t now = dlc_awake_ns(), next = a->last_sent + DLC_HEARTBEAT_NS;
    if (!a->running) /* only the hub's timeout is left to check */
        next = now + DLC_HEARTBEAT_NS;
    if (a->kill_at && a->kill_at < next)
        next = a->kill_at;
    return next <= now ? 0 : (int)((next - now) / 1000000u) + 1;
}

static dlc_status step(agent *a) {
    short rank_out = dlc_channel_has_output(&a->rank) ? POLLOUT : 0;
    short hub_out = dlc_channel_has_output(&a->hub) ? POLLOUT : 0;
    struct pollfd polled[] = {{.fd = a->signals, .events = POLLIN},
                              {.fd = a->rank.fd, .events = (short)(POLLIN | rank_out)},
                              {.fd = a->hub.fd, .events = (short)(POLLIN | hub_out)}};
    if (poll(polled, 3, poll_timeout(a)) < 0 && errno != EINTR)
        return dlc_fail(DLC_ERR_IO, "the agent of rank %d cannot poll: %s",
                        a->args->rank, strerror(errno));
    if (polled[1].revents & ~POLLOUT)
        read_rank(a);
    if (polled[2].revents & ~POLLOUT)
        read_hub(a);
    if (polled[0].revents)
        read_signals(a);
    check_timeouts(a);
    flush_rank(a);
    flush_hub(a);
    DLC_TRY(dlc_text_status(&a->rank.out));
    return dlc_text_status(&a->hub.out);
}

dlc_status dlc_agent_run(const dlc_agent_args *args, int *exit_code) {
    agent a = {.args = args,
               .rank = {.fd = args->control},
               .hub = {.fd = args->hub},
               .parent = args->parent,
               .last_heard = dlc_awake_ns(),
               .running = 1};
    dlc_status status = dlc_signals_open(args->signals, "an agent", &a.signals);
    if (status == DLC_OK)
        check_exit(&a); /* it may have ended before signals were read */
    while (status == DLC_OK && (a.running || !(a.done || a.hub_lost)))
        status = step(&a);
    kill_rank(&a, SIGKILL);
    while (waitpid(args->child, NULL, 0) < 0 && errno == EINTR)
        continue;
    dlc_channel_close(&a.rank);
    dlc_channel_close(&a.hub);
    if (a.signals >= 0)
        close(a.signals);
    if (status == DLC_OK)
        *exit_code = a.done ? a.code : dlc_exit_code(DLC_ERR_PEER);
    return status;
}
