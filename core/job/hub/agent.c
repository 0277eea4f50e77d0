/* The agent's poll loop: relays frames, takes heartbeats, forwards signals, and checks
 * that the hub is still there. Its clock is dlc_awake_ns: the hub may have been stopped
 * with it. */
#include "job/hub/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* ---- The rank ------------------------------------------------------------------- */

static void kill_rank(dlc_agent *a, int signal) {
    if (a->running)
        kill(a->child, signal);
    if (signal == SIGKILL)
        a->kill_at = 0;
}

static void send_heartbeat(dlc_agent *a) {
    dlc_heartbeat heartbeat = dlc_heartbeat_take(a->child, a->activity, &a->last);
    dlc_frame frame = {.kind = DLC_FRAME_HEARTBEAT, .bytes = sizeof heartbeat};
    dlc_channel_send(&a->to_hub, &frame, &heartbeat);
    a->last_sent = dlc_awake_ns();
}

static void read_rank(dlc_agent *a) {
    while (dlc_channel_read(&a->to_rank))
        dlc_channel_send(&a->to_hub, &a->to_rank.frame, a->to_rank.payload.bytes);
}

static void start_grace_period(dlc_agent *a) {
    if (!a->kill_at && a->running)
        a->kill_at = dlc_awake_ns() + DLC_GRACE_NS;
}

static void lose_hub(dlc_agent *a, const char *why) {
    char text[512], activity[DLC_ACTIVITY_TEXT];
    if (a->hub_lost || a->done)
        return;
    a->hub_lost = 1;
    dlc_channel_close(&a->to_hub);
    dlc_activity_text(&a->activity->current, activity);
    snprintf(text, sizeof text,
             "rank %d (pid %d) has lost the hub%s: rank 0's process at %s %s", a->rank,
             (int)a->child, activity, a->hub_address, why);
    if (a->running)
        dlc_error("%s", text);
    dlc_frame frame = {
        .kind = DLC_FRAME_ABORT, .number = DLC_ERR_PEER, .bytes = strlen(text)};
    dlc_channel_send(&a->to_rank, &frame, text);
    start_grace_period(a);
}

static void flush_hub(dlc_agent *a) {
    if (dlc_channel_flush(&a->to_hub) != DLC_OK)
        lose_hub(a, dlc_detail());
}

/* Without its channel the rank ends by itself. */
static void flush_rank(dlc_agent *a) {
    if (dlc_channel_flush(&a->to_rank) != DLC_OK)
        dlc_error("rank %d (pid %d) %s", a->rank, (int)a->child, dlc_detail());
}

/* Forwards everything that the rank has sent before reporting its end; an incomplete
 * frame is dropped. */
static void check_exit(dlc_agent *a) {
    dlc_ending how;
    if (!a->running || !dlc_process_has_ended(a->child, &how))
        return;
    read_rank(a);
    send_heartbeat(a);
    dlc_frame frame = {
        .kind = DLC_FRAME_ENDED, .number = how.number, .size = (uint64_t)how.by_signal};
    dlc_channel_send(&a->to_hub, &frame, NULL);
    flush_hub(a);
    dlc_channel_close(&a->to_rank);
    a->running = 0;
    a->kill_at = 0;
}

/* ---- The hub -------------------------------------------------------------------- */

static void handle_hub_frame(dlc_agent *a) {
    const dlc_frame *frame = &a->to_hub.frame;
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
        dlc_channel_send(&a->to_rank, frame, a->to_hub.payload.bytes);
        break;
    default:
        dlc_channel_send(&a->to_rank, frame, a->to_hub.payload.bytes);
    }
}

static void read_hub(dlc_agent *a) {
    while (!a->done && dlc_channel_read(&a->to_hub)) {
        a->last_heard = dlc_awake_ns();
        handle_hub_frame(a);
    }
    if (a->to_hub.fd < 0)
        lose_hub(a, "is gone");
}

static void forward_signal(dlc_agent *a, int signal) {
    dlc_frame frame = {.kind = DLC_FRAME_SIGNAL, .number = signal};
    dlc_channel_send(&a->to_hub, &frame, NULL);
}

/* ---- The loop ------------------------------------------------------------------- */

static void read_agent_signals(dlc_agent *a) {
    for (int signal; (signal = dlc_signals_next(a->signals));)
        if (signal == SIGCHLD)
            check_exit(a);
        else if (signal !=
                 SIGTSTP) /* to other ranks, stopping would look like a hang */
            forward_signal(a, signal);
}

static void check_timeouts(dlc_agent *a) {
    uint64_t now = dlc_awake_ns();
    if (now - a->last_sent >= DLC_HEARTBEAT_NS && a->running) {
        check_exit(a); /* SIGCHLD may have gone to another thread */
        if (dlc_launcher_is_gone(&a->parent))
            forward_signal(a, SIGTERM);
        if (a->running)
            send_heartbeat(a);
    }
    double silent = dlc_between(a->last_heard, now);
    if (a->hang_timeout > 0 && silent > a->hang_timeout) {
        char text[128];
        snprintf(
            text, sizeof text,
            "has not been heard from for %.1f s: it, its machine or the network is "
            "down",
            silent);
        lose_hub(a, text);
    }
    if (a->kill_at && now >= a->kill_at) {
        dlc_warn("rank %d (pid %d) did not end in time: killing it", a->rank,
                 (int)a->child);
        kill_rank(a, SIGKILL);
    }
}

/* Without a rank only the hub's timeout is left to check. */
static int agent_timeout(const dlc_agent *a) {
    const uint64_t moments[] = {
        (a->running ? a->last_sent : dlc_awake_ns()) + DLC_HEARTBEAT_NS, a->kill_at};
    return dlc_poll_until(moments, 2);
}

static struct pollfd poll_for(const dlc_channel *channel) {
    int has_output = dlc_channel_has_output(channel);
    return (struct pollfd){.fd = channel->fd,
                           .events = (short)(POLLIN | (has_output ? POLLOUT : 0))};
}

static dlc_status relay_once(dlc_agent *a) {
    struct pollfd polled[] = {{.fd = a->signals, .events = POLLIN},
                              poll_for(&a->to_rank),
                              poll_for(&a->to_hub)};
    if (poll(polled, 3, agent_timeout(a)) < 0 && errno != EINTR)
        return dlc_fail(DLC_ERR_IO, "the agent of rank %d cannot poll: %s", a->rank,
                        strerror(errno));
    if (polled[1].revents & ~POLLOUT)
        read_rank(a);
    if (polled[2].revents & ~POLLOUT)
        read_hub(a);
    if (polled[0].revents)
        read_agent_signals(a);
    check_timeouts(a);
    flush_rank(a);
    flush_hub(a);
    DLC_TRY(dlc_text_status(&a->to_rank.out));
    return dlc_text_status(&a->to_hub.out);
}

dlc_status dlc_agent_run(dlc_agent *a, const sigset_t *signals, int *exit_code) {
    a->last_heard = dlc_awake_ns();
    a->running = 1;
    dlc_status status = dlc_signals_open(signals, "an agent", &a->signals);
    if (status == DLC_OK)
        check_exit(a); /* it may have ended before signals were read */
    while (status == DLC_OK && (a->running || !(a->done || a->hub_lost)))
        status = relay_once(a);
    kill_rank(a, SIGKILL);
    (void)dlc_process_wait(a->child);
    dlc_channel_close(&a->to_rank);
    dlc_channel_close(&a->to_hub);
    dlc_close(&a->signals);
    if (status == DLC_OK)
        *exit_code = a->done ? a->code : dlc_exit_code(DLC_ERR_PEER);
    return status;
}
