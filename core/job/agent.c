/* See agent.h. */
#include "job/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/channel.h"
#include "job/rank.h"

typedef struct agent {
    const dlc_agent_args *args;
    dlc_channel rank, hub;
    int signals;
    dlc_pulse_last last;
    uint64_t told;    /* when the pulse was last sent */
    uint64_t heard;   /* when the hub last was */
    uint64_t kill_at; /* then the rank is killed; 0: never */
    int running;
    int gone; /* the hub is; a rank that still ran was told */
    int done; /* the hub has told the exit code */
    int code;
} agent;

/* ---- The rank ------------------------------------------------------------------ */

static void kill_rank(agent *a, int signal) {
    if (a->running)
        kill(a->args->child, signal);
    if (signal == SIGKILL)
        a->kill_at = 0;
}

static void tell_pulse(agent *a) {
    dlc_pulse pulse = dlc_pulse_take(a->args->child, a->args->doing, &a->last);
    dlc_frame frame = {.kind = DLC_FRAME_PULSE, .bytes = sizeof pulse};
    dlc_channel_put(&a->hub, &frame, &pulse);
    a->told = dlc_now_ns();
}

static void read_rank(agent *a) {
    while (dlc_channel_read(&a->rank))
        dlc_channel_put(&a->hub, &a->rank.frame, a->rank.payload.bytes);
}

static void give_grace(agent *a) {
    if (!a->kill_at && a->running)
        a->kill_at = dlc_now_ns() + DLC_GRACE_NS;
}

static void hub_is_gone(agent *a, const char *why) {
    char text[512], doing[DLC_DOING_TEXT];
    if (a->gone || a->done)
        return;
    a->gone = 1;
    dlc_channel_close(&a->hub);
    dlc_words_text(&a->args->doing->words, doing);
    snprintf(text, sizeof text,
             "rank %d (pid %d) is left alone%s: rank 0's process at %s, which joins "
             "the ranks, %s",
             a->args->rank, (int)a->args->child, doing, a->args->hub_address, why);
    if (a->running)
        dlc_error("%s", text);
    dlc_frame frame = {
        .kind = DLC_FRAME_NEWS, .number = DLC_ERR_PEER, .bytes = strlen(text)};
    dlc_channel_put(&a->rank, &frame, text);
    give_grace(a);
}

static void flush_hub(agent *a) {
    if (dlc_channel_flush(&a->hub) != DLC_OK)
        hub_is_gone(a, dlc_detail());
}

/* Without its channel the rank ends by itself. */
static void flush_rank(agent *a) {
    if (dlc_channel_flush(&a->rank) != DLC_OK)
        dlc_error("rank %d (pid %d) %s", a->args->rank, (int)a->args->child,
                  dlc_detail());
}

/* What it has sent comes before the news of its end; of a frame that it could not
 * finish, the hub learns nothing. */
static void find_end(agent *a) {
    siginfo_t how = {0};
    if (!a->running ||
        waitid(P_PID, (id_t)a->args->child, &how, WEXITED | WNOHANG | WNOWAIT) ||
        !how.si_pid)
        return;
    read_rank(a);
    tell_pulse(a);
    dlc_frame frame = {.kind = DLC_FRAME_ENDED,
                       .number = how.si_status,
                       .size = how.si_code != CLD_EXITED};
    dlc_channel_put(&a->hub, &frame, NULL);
    flush_hub(a);
    dlc_channel_close(&a->rank);
    a->running = 0;
    a->kill_at = 0;
}

/* ---- The hub ------------------------------------------------------------------- */

static void take_from_hub(agent *a) {
    const dlc_frame *frame = &a->hub.frame;
    switch (frame->kind) {
    case DLC_FRAME_PULSE:
        break;
    case DLC_FRAME_KILL:
        kill_rank(a, frame->number);
        break;
    case DLC_FRAME_DONE:
        a->done = 1;
        a->code = frame->number;
        kill_rank(a, SIGKILL); /* nobody else waits for it */
        break;
    case DLC_FRAME_NEWS:
        give_grace(a);
        dlc_channel_put(&a->rank, frame, a->hub.payload.bytes);
        break;
    default:
        dlc_channel_put(&a->rank, frame, a->hub.payload.bytes);
    }
}

static void read_hub(agent *a) {
    while (!a->done && dlc_channel_read(&a->hub)) {
        a->heard = dlc_now_ns();
        take_from_hub(a);
    }
    if (a->hub.fd < 0)
        hub_is_gone(a, "is gone");
}

/* ---- The loop ------------------------------------------------------------------ */

static void read_signals(agent *a) {
    struct signalfd_siginfo info;
    while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            find_end(a);
            continue;
        }
        if (info.ssi_signo == SIGTSTP)
            continue; /* the others would take it for a hang */
        dlc_frame frame = {.kind = DLC_FRAME_SIGNAL, .number = (int)info.ssi_signo};
        dlc_channel_put(&a->hub, &frame, NULL);
    }
}

static void look_at_the_clock(agent *a) {
    uint64_t now = dlc_now_ns();
    if (now - a->told >= DLC_BEAT_NS && a->running) {
        find_end(a); /* another thread may have had the signal */
        if (a->running)
            tell_pulse(a);
    }
    if (a->args->deadline > 0 && dlc_since(a->heard) > a->args->deadline) {
        char text[128];
        snprintf(text, sizeof text,
                 "was not heard of for %.1f s: it, its machine or the network is down",
                 dlc_since(a->heard));
        hub_is_gone(a, text);
    }
    if (a->kill_at && now >= a->kill_at) {
        dlc_warn("rank %d (pid %d) did not end in time and is killed", a->args->rank,
                 (int)a->args->child);
        kill_rank(a, SIGKILL);
    }
}

static int turn_ms(const agent *a) {
    uint64_t now = dlc_now_ns(), next = a->told + DLC_BEAT_NS;
    if (!a->running) /* only the hub's silence is waited for */
        next = now + DLC_BEAT_NS;
    if (a->kill_at && a->kill_at < next)
        next = a->kill_at;
    return next <= now ? 0 : (int)((next - now) / 1000000u) + 1;
}

static dlc_status turn(agent *a) {
    short rank_out = dlc_channel_wants_out(&a->rank) ? POLLOUT : 0;
    short hub_out = dlc_channel_wants_out(&a->hub) ? POLLOUT : 0;
    struct pollfd polled[] = {{.fd = a->signals, .events = POLLIN},
                              {.fd = a->rank.fd, .events = (short)(POLLIN | rank_out)},
                              {.fd = a->hub.fd, .events = (short)(POLLIN | hub_out)}};
    if (poll(polled, 3, turn_ms(a)) < 0 && errno != EINTR)
        return dlc_fail(DLC_ERR_IO, "the agent of rank %d cannot poll: %s",
                        a->args->rank, strerror(errno));
    if (polled[1].revents & ~POLLOUT)
        read_rank(a);
    if (polled[2].revents & ~POLLOUT)
        read_hub(a);
    if (polled[0].revents)
        read_signals(a);
    look_at_the_clock(a);
    flush_rank(a);
    flush_hub(a);
    DLC_TRY(dlc_text_status(&a->rank.out));
    return dlc_text_status(&a->hub.out);
}

dlc_status dlc_agent_run(const dlc_agent_args *args, int *exit_code) {
    agent a = {.args = args,
               .rank = {.fd = args->control},
               .hub = {.fd = args->hub},
               .heard = dlc_now_ns(),
               .running = 1};
    dlc_status status = DLC_OK;
    a.signals = signalfd(-1, args->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a.signals < 0)
        status = dlc_fail(DLC_ERR_IO,
                          "the agent of rank %d cannot listen for signals: %s",
                          args->rank, strerror(errno));
    else
        find_end(&a); /* it may have died before anybody listened */
    while (status == DLC_OK && (a.running || !(a.done || a.gone)))
        status = turn(&a);
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
