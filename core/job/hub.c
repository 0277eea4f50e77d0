/* See hub.h. */
#include "job/hub.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* How long ranks may take to end once they were told to. */
#define GRACE_NS 1500000000u

/* ---- To the ranks ----------------------------------------------------------- */

static void close_control(dlc_peer *peer) {
    if (peer->control >= 0)
        close(peer->control);
    peer->control = -1;
}

/* What poll() finds closed later is of no interest before. */
static size_t send_some(dlc_peer *peer, const char *bytes, size_t length) {
    ssize_t done = send(peer->control, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    return done > 0 ? (size_t)done : 0;
}

/* Sends as much as the channel takes. */
static void flush_peer(dlc_hub *hub, dlc_peer *peer) {
    while (peer->control >= 0) {
        size_t until = peer->has_result ? peer->result_at : peer->out.length;
        size_t done = 1;
        if (peer->out_sent < until) {
            done = send_some(peer, peer->out.bytes + peer->out_sent,
                             until - peer->out_sent);
            peer->out_sent += done;
        } else if (peer->has_result) {
            done = send_some(peer, hub->result + peer->result_sent,
                             hub->result_bytes - peer->result_sent);
            peer->result_sent += done;
            peer->has_result = peer->result_sent < hub->result_bytes;
        } else {
            peer->out.length = peer->out_sent = 0;
            return;
        }
        if (!done)
            return;
    }
}

void dlc_hub_send(dlc_hub *hub, int rank, const dlc_frame *frame, const void *payload) {
    dlc_peer *peer = &hub->peer[rank];
    if (peer->control < 0)
        return;
    dlc_text_append(&peer->out, (const char *)frame, sizeof *frame);
    if (payload)
        dlc_text_append(&peer->out, payload, frame->bytes);
}

static void send_request(dlc_hub *hub, unsigned request) {
    dlc_frame frame = {.kind = DLC_FRAME_REQUEST, .number = (int32_t)request};
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_send(hub, r, &frame, NULL);
}

static void send_news(dlc_hub *hub, dlc_status status, const char *text) {
    if (hub->told)
        return;
    hub->told = 1;
    hub->deadline = dlc_now_ns() + GRACE_NS;
    dlc_frame frame = {.kind = DLC_FRAME_NEWS, .number = status, .bytes = strlen(text)};
    for (int r = 0; r < hub->ranks; r++) {
        dlc_hub_send(hub, r, &frame, text);
        flush_peer(hub, &hub->peer[r]); /* before anything that may take time */
    }
}

void dlc_hub_tell(dlc_hub *hub, dlc_status status, const char *text) {
    if (hub->told)
        return;
    if (status == DLC_ERR_PEER)
        hub->lost = 1;
    else
        hub->failure = dlc_exit_code(status);
    send_news(hub, status, text);
    dlc_error("%s", text);
}

static void signal_ranks(dlc_hub *hub, int signal) {
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running)
            kill(hub->peer[r].pid, signal);
}

static void kill_ranks(dlc_hub *hub) {
    hub->killed = 1;
    hub->deadline = 0;
    signal_ranks(hub, SIGKILL);
}

/* Takes the dead out of the process table. Nothing may wait for this: the kernel
 * was seen to take seconds over it. */
static void bury(dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        while (peer->zombie && waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        peer->zombie = 0;
    }
}

void dlc_hub_kill(dlc_hub *hub) {
    kill_ranks(hub);
    for (int r = 0; r < hub->ranks; r++) {
        hub->peer[r].zombie |= hub->peer[r].running;
        hub->peer[r].running = 0;
    }
    bury(hub);
}

/* ---- The end of a rank ------------------------------------------------------ */

static void rank_ended(dlc_hub *hub, int rank, const siginfo_t *how) {
    dlc_peer *peer = &hub->peer[rank];
    int first = !hub->told && !hub->killed;
    int code = how->si_code == CLD_EXITED ? how->si_status : 0;
    int signal = how->si_code == CLD_EXITED ? 0 : how->si_status;
    char text[512], doing[DLC_DOING_TEXT];
    dlc_doing_text(peer->doing, doing);
    int length = snprintf(text, sizeof text, "rank %d (host %s, pid %d) ", rank,
                          hub->host, (int)peer->pid);
    char *what = text + length;
    size_t room = sizeof text - (size_t)length;
    if (signal) {
        snprintf(what, room, "was killed by signal %d (%s)%s", signal,
                 strsignal(signal), doing); // NOLINT(concurrency-mt-unsafe)
        hub->lost |= !hub->killed;
    } else if (code) {
        snprintf(what, room, "ended with exit code %d%s", code, doing);
        if (first && code > hub->failure)
            hub->failure = code;
    }
    if (first && (signal || code))
        send_news(hub, DLC_ERR_PEER, text);
    dlc_output_drain(&peer->output, 1); /* its last words, then what became of it */
    if ((first && code) || (signal && !hub->killed))
        dlc_error("%s", text);
    if (!signal && !code)
        dlc_hub_call_check(hub);
}

/* All who are dead by now, those killed first: what others did because of that
 * is not the cause. */
static void find_dead(dlc_hub *hub) {
    for (int killed = 1; killed >= 0; killed--)
        for (int r = 0; r < hub->ranks; r++) {
            dlc_peer *peer = &hub->peer[r];
            siginfo_t how = {0};
            if (!peer->running ||
                waitid(P_PID, (id_t)peer->pid, &how, WEXITED | WNOHANG | WNOWAIT) ||
                !how.si_pid || (killed && how.si_code == CLD_EXITED))
                continue;
            peer->running = 0;
            peer->zombie = 1;
            close_control(peer);
            rank_ended(hub, r, &how);
        }
    bury(hub);
}

/* ---- Signals ---------------------------------------------------------------- */

/* Of the launcher or, passed on, of a rank. Some send a signal to all processes of
 * a job: only who gets it twice was asked again. */
static void take_signal(dlc_hub *hub, int signal, uint64_t *stop_time) {
    if (signal == SIGHUP) {
        send_request(hub, DLC_JOB_SNAPSHOT);
        return;
    }
    if (!*stop_time) {
        *stop_time = dlc_now_ns();
        if (hub->stop_signal)
            return;
        hub->stop_signal = signal;
        send_request(hub, DLC_JOB_STOP);
    } else if (dlc_since(*stop_time) >= DLC_STOP_AGAIN_S && !hub->killed) {
        hub->stop_signal = signal;
        hub->lost = hub->failure = 0; /* whatever it was, this ends it */
        dlc_warn("asked again to stop: the ranks are killed");
        kill_ranks(hub);
    }
}

/* Ctrl-Z reaches the launcher only; the ranks stop and go on with it. */
static void stop_and_go_on(dlc_hub *hub) {
    signal_ranks(hub, SIGSTOP);
    raise(SIGSTOP);
    signal_ranks(hub, SIGCONT);
}

static void read_signals(dlc_hub *hub) {
    struct signalfd_siginfo info;
    while (read(hub->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            find_dead(hub);
        else if (info.ssi_signo == SIGTSTP)
            stop_and_go_on(hub);
        else
            take_signal(hub, (int)info.ssi_signo, &hub->stop_time);
    }
}

/* ---- From the ranks --------------------------------------------------------- */

/* One step of the incoming frame: up to `length` bytes to `to`. 0: no more now. */
static size_t receive_some(dlc_peer *peer, void *to, size_t length) {
    ssize_t got = recv(peer->control, to, length, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (!got || (errno != EAGAIN && errno != EINTR))
        close_control(peer); /* how the rank ended, its exit will tell */
    return 0;
}

static void frame_begin(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    peer->payload_got = 0;
    peer->accepted = 0;
    switch (peer->frame.kind) {
    case DLC_FRAME_SIGNAL:
        take_signal(hub, peer->frame.number, &peer->stop_time);
        break;
    case DLC_FRAME_ALLGATHER:
    case DLC_FRAME_BROADCAST:
        peer->accepted = !hub->told && dlc_hub_call_begin(hub, rank);
        break;
    default:
        dlc_hub_tell(hub, DLC_ERR_INTERNAL, "a rank sent an unknown message");
    }
}

static void read_frames(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    char nowhere[4096];
    while (peer->control >= 0) {
        if (peer->frame_got < sizeof peer->frame) {
            size_t got = receive_some(peer, (char *)&peer->frame + peer->frame_got,
                                      sizeof peer->frame - peer->frame_got);
            peer->frame_got += got;
            if (!got)
                return;
            if (peer->frame_got < sizeof peer->frame)
                continue;
            frame_begin(hub, rank);
        }
        size_t left = peer->frame.bytes - peer->payload_got;
        if (left) {
            char *to = nowhere;
            if (peer->accepted)
                to = dlc_hub_call_buffer(hub, rank) + peer->payload_got;
            else if (left > sizeof nowhere)
                left = sizeof nowhere;
            size_t got = receive_some(peer, to, left);
            peer->payload_got += got;
            if (!got)
                return;
        }
        if (peer->payload_got == peer->frame.bytes) {
            peer->frame_got = 0;
            if (peer->accepted)
                dlc_hub_call_end(hub, rank);
        }
    }
}

/* ---- The loop --------------------------------------------------------------- */

/* What to wait for: signals, stderr, then control and output of each rank. */
static void poll_set(const dlc_hub *hub, struct pollfd *polled) {
    int pending = 0;
    polled[0] = (struct pollfd){.fd = hub->signals, .events = POLLIN};
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        int sends = peer->out.length > 0 || peer->has_result;
        polled[2 + 2 * r] = (struct pollfd){
            .fd = peer->control, .events = (short)(POLLIN | (sends ? POLLOUT : 0))};
        polled[3 + 2 * r] = (struct pollfd){
            .fd = dlc_output_wants(&peer->output) ? peer->output.fd : -1,
            .events = POLLIN};
        pending |= dlc_output_has(&peer->output);
    }
    polled[1] = (struct pollfd){.fd = pending ? STDERR_FILENO : -1, .events = POLLOUT};
}

static int poll_timeout(const dlc_hub *hub) {
    if (!hub->deadline)
        return -1;
    uint64_t now = dlc_now_ns();
    return now >= hub->deadline ? 0 : (int)((hub->deadline - now) / 1000000u) + 1;
}

/* The output of several ranks takes turns; a line is never cut by another's. */
static void write_output(dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++) {
        struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (!dlc_output_has(&hub->peer[r].output))
            continue;
        if (poll(&writable, 1, 0) <= 0)
            return;
        dlc_output_write(&hub->peer[r].output);
    }
}

static void kill_late(dlc_hub *hub) {
    if (!hub->deadline || dlc_now_ns() < hub->deadline)
        return;
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running)
            dlc_warn("rank %d (host %s, pid %d) did not end in time and is killed", r,
                     hub->host, (int)hub->peer[r].pid);
    kill_ranks(hub);
}

static dlc_status turn(dlc_hub *hub, struct pollfd *polled) {
    poll_set(hub, polled);
    if (poll(polled, 2 + 2 * (nfds_t)hub->ranks, poll_timeout(hub)) < 0)
        return errno == EINTR ? DLC_OK
                              : dlc_fail(DLC_ERR_IO, "the launcher cannot poll: %s",
                                         strerror(errno));
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        if (polled[2 + 2 * r].revents & ~POLLOUT)
            read_frames(hub, r);
        if (polled[3 + 2 * r].revents)
            dlc_output_read(&peer->output);
    }
    if (polled[0].revents)
        read_signals(hub);
    if (polled[1].revents)
        write_output(hub);
    kill_late(hub);
    for (int r = 0; r < hub->ranks; r++) {
        flush_peer(hub, &hub->peer[r]);
        DLC_TRY(dlc_text_status(&hub->peer[r].out));
    }
    return DLC_OK;
}

static int running(const dlc_hub *hub) {
    int count = 0;
    for (int r = 0; r < hub->ranks; r++)
        count += hub->peer[r].running;
    return count;
}

dlc_status dlc_hub_run(dlc_hub *hub, int *exit_code) {
    struct pollfd *polled = dlc_alloc(2 + 2 * (size_t)hub->ranks, sizeof *polled);
    if (!polled)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    while (status == DLC_OK && running(hub))
        status = turn(hub, polled);
    dlc_free(polled);
    if (status != DLC_OK)
        return status;
    *exit_code = hub->lost          ? dlc_exit_code(DLC_ERR_PEER)
                 : hub->failure     ? hub->failure
                 : hub->stop_signal ? 128 + hub->stop_signal
                                    : 0;
    return DLC_OK;
}
