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
#include "job/agent.h"
#include "job/rank.h"

/* How long remote ranks may take to be killed. */
#define LEAVE_NS 1000000000u

/* How long it is waited whether all ranks fail for the reason of the first. */
#define ALIKE_NS 300000000u

/* ---- To the ranks ----------------------------------------------------------- */

static void close_control(dlc_peer *peer) {
    if (peer->control >= 0)
        close(peer->control);
    peer->control = -1;
}

/* A rank that cannot be sent to would wait until the watchdog blames it. Without its
 * channel it ends by itself. */
static void cannot_send(dlc_hub *hub, int rank, int error) {
    dlc_peer *peer = &hub->peer[rank];
    char name[128], text[320];
    snprintf(text, sizeof text, "it cannot be sent to: %s",
             strerror(error)); // NOLINT(concurrency-mt-unsafe)
    if (peer->remote) {
        dlc_hub_lose(hub, rank, text);
        return;
    }
    close_control(peer);
    dlc_hub_name(hub, rank, name, sizeof name);
    snprintf(text, sizeof text, "%s cannot be sent to: %s", name,
             strerror(error)); // NOLINT(concurrency-mt-unsafe)
    dlc_hub_tell(hub, DLC_ERR_IO, text);
}

/* What poll() finds closed later is of no interest before. */
static size_t send_some(dlc_hub *hub, int rank, const char *bytes, size_t length) {
    ssize_t done = send(hub->peer[rank].control, bytes, length,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done >= 0)
        return (size_t)done;
    if (!dlc_send_is_full(errno) && !dlc_send_is_closed(errno))
        cannot_send(hub, rank, errno);
    return 0;
}

void dlc_hub_flush(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    while (peer->control >= 0) {
        size_t until = peer->has_result ? peer->result_at : peer->out.length;
        size_t done = 1;
        if (peer->out_sent < until) {
            done = send_some(hub, rank, peer->out.bytes + peer->out_sent,
                             until - peer->out_sent);
            peer->out_sent += done;
        } else if (peer->has_result) {
            done = send_some(hub, rank, hub->result + peer->result_sent,
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

void dlc_hub_send_news(dlc_hub *hub, dlc_status status, const char *text) {
    if (hub->told)
        return;
    hub->told = 1;
    hub->kill_at = dlc_now_ns() + DLC_GRACE_NS;
    dlc_frame frame = {.kind = DLC_FRAME_NEWS, .number = status, .bytes = strlen(text)};
    for (int r = 0; r < hub->ranks; r++) {
        dlc_hub_send(hub, r, &frame, text);
        dlc_hub_flush(hub, r); /* before anything that may take time */
    }
}

void dlc_hub_tell(dlc_hub *hub, dlc_status status, const char *text) {
    if (hub->told)
        return;
    if (status == DLC_ERR_PEER)
        hub->lost = 1;
    else
        hub->failure = dlc_exit_code(status);
    dlc_hub_send_news(hub, status, text);
    dlc_error("%s", text);
}

void dlc_hub_kill_rank(dlc_hub *hub, int rank, int signal) {
    dlc_peer *peer = &hub->peer[rank];
    if (!peer->running)
        return;
    peer->killed |= signal == SIGKILL;
    if (peer->remote) {
        dlc_frame frame = {.kind = DLC_FRAME_KILL, .number = signal};
        dlc_hub_send(hub, rank, &frame, NULL);
        dlc_hub_flush(hub, rank);
    } else if (peer->pid) {
        kill(peer->pid, signal);
    }
}

static void signal_ranks(dlc_hub *hub, int signal) {
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_kill_rank(hub, r, signal);
}

static void kill_ranks(dlc_hub *hub) {
    hub->killed = 1;
    hub->kill_at = 0;
    hub->leave_at = dlc_now_ns() + LEAVE_NS;
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
        hub->peer[r].zombie |= hub->peer[r].running && hub->peer[r].pid &&
                               !hub->peer[r].remote;
        hub->peer[r].running = 0;
    }
    bury(hub);
}

/* ---- The end of a rank ------------------------------------------------------ */

int dlc_hub_name(const dlc_hub *hub, int rank, char *text, size_t room) {
    const dlc_peer *peer = &hub->peer[rank];
    return snprintf(text, room, "rank %d (host %s, pid %d)", rank, peer->host,
                    (int)peer->pid);
}

/* What it did at the end: of a child, it stands in the memory that both share. */
static void last_words(const dlc_peer *peer, char text[DLC_DOING_TEXT]) {
    dlc_words_text(peer->doing ? &peer->doing->words : &peer->pulse.words, text);
}

/* Of bad input the ranks of a machine think alike, so it is not one rank's own. */
static int is_common(const dlc_hub *hub) {
    int alike = 0;
    for (int r = 0; r < hub->ranks; r++)
        alike += strcmp(hub->peer[r].failure, hub->cause->failure) == 0;
    return alike == hub->ranks || (DLC_STATUS_CLASS(hub->cause->failed) == 4 &&
                                   strcmp(hub->cause->host, hub->peer[0].host) == 0);
}

static void say_cause(dlc_hub *hub) {
    char name[128];
    hub->say_cause_at = 0;
    dlc_hub_name(hub, (int)(hub->cause - hub->peer), name, sizeof name);
    if (is_common(hub))
        dlc_error("%s", hub->cause->failure);
    else
        dlc_error("%s: %s", name, hub->cause->failure);
}

/* A rank has ended with an exit code, `text` tells. One that failed because of another
 * is no news, nor is one that failed as the first did. */
static void say_exit(dlc_hub *hub, const dlc_peer *peer, int first, const char *text) {
    if (first && peer->failed && peer->failed != DLC_ERR_PEER) {
        hub->cause = peer;
        hub->say_cause_at = dlc_now_ns() + ALIKE_NS;
    } else if (first) {
        dlc_error("%s", text);
    } else if (peer->failed && peer->failed != DLC_ERR_PEER && !hub->killed &&
               (!hub->cause || strcmp(peer->failure, hub->cause->failure) != 0)) {
        dlc_error("%s", text);
    }
}

void dlc_hub_ended(dlc_hub *hub, int rank, int by_signal, int number) {
    dlc_peer *peer = &hub->peer[rank];
    int mine = hub->killed || peer->killed; /* the hub's own doing */
    int first = !hub->told && !hub->killed;
    int signal = by_signal ? number : 0, code = by_signal ? 0 : number;
    char text[256 + DLC_FAILURE_TEXT], doing[DLC_DOING_TEXT];
    peer->running = 0;
    last_words(peer, doing);
    int length = dlc_hub_name(hub, rank, text, sizeof text);
    char *what = text + length;
    size_t room = sizeof text - (size_t)length;
    if (signal) {
        snprintf(what, room, " was killed by signal %d (%s)%s", signal,
                 strsignal(signal), doing); // NOLINT(concurrency-mt-unsafe)
        hub->lost |= !mine;
    } else if (code) {
        if (peer->failed)
            snprintf(what, room, ": %s", peer->failure);
        else
            snprintf(what, room, " ended with exit code %d%s", code, doing);
        if (first && code > hub->failure)
            hub->failure = code;
    }
    if (first && (signal || code))
        dlc_hub_send_news(hub, DLC_ERR_PEER, text);
    dlc_output_drain(&peer->output, 1); /* its last words, then what became of it */
    if (signal && !mine)
        dlc_error("%s", text);
    else if (code)
        say_exit(hub, peer, first, text);
    if (!signal && !code)
        dlc_hub_call_check(hub);
}

void dlc_hub_lose(dlc_hub *hub, int rank, const char *why) {
    dlc_peer *peer = &hub->peer[rank];
    char text[512], name[128], doing[DLC_DOING_TEXT];
    close_control(peer);
    if (!peer->running)
        return;
    peer->running = 0;
    if (hub->killed || peer->killed)
        return;
    last_words(peer, doing);
    dlc_hub_name(hub, rank, name, sizeof name);
    snprintf(text, sizeof text, "lost %s%s: %s", name, doing, why);
    if (!hub->told) {
        dlc_hub_tell(hub, DLC_ERR_PEER, text);
        return;
    }
    hub->lost = 1;
    dlc_error("%s", text);
}

/* All who are dead by now, those killed first: what others did because of that
 * is not the cause. */
static void find_dead(dlc_hub *hub) {
    for (int killed = 1; killed >= 0; killed--)
        for (int r = 0; r < hub->ranks; r++) {
            dlc_peer *peer = &hub->peer[r];
            siginfo_t how = {0};
            if (!peer->running || !peer->pid || peer->remote ||
                waitid(P_PID, (id_t)peer->pid, &how, WEXITED | WNOHANG | WNOWAIT) ||
                !how.si_pid || (killed && how.si_code == CLD_EXITED))
                continue;
            peer->zombie = 1;
            if (peer->control >= 0)
                dlc_hub_read(hub, r); /* why it failed */
            close_control(peer);
            dlc_hub_ended(hub, r, how.si_code != CLD_EXITED, how.si_status);
        }
    bury(hub);
}

/* ---- Signals ---------------------------------------------------------------- */

void dlc_hub_end_by_signal(dlc_hub *hub, int signal) {
    hub->stop_signal = signal;
    hub->lost = hub->failure = 0;
    kill_ranks(hub);
}

/* Some send a signal to all processes of a job: only who gets it twice was asked
 * again. */
void dlc_hub_signal(dlc_hub *hub, int signal, uint64_t *stop_time) {
    if (dlc_signal_request(signal)) {
        send_request(hub, dlc_signal_request(signal));
        return;
    }
    if (!*stop_time) {
        *stop_time = dlc_now_ns();
        if (hub->stop_signal)
            return;
        hub->stop_signal = signal;
        hub->stopped_at = *stop_time;
        if (hub->gate) /* nobody has anything to save yet */
            kill_ranks(hub);
        send_request(hub, DLC_JOB_STOP);
    } else if (dlc_since(*stop_time) >= DLC_STOP_AGAIN_S && !hub->killed) {
        dlc_warn("asked again to stop: the ranks are killed");
        dlc_hub_end_by_signal(hub, signal);
    }
}

/* Ctrl-Z reaches the launcher only; the ranks stop and go on with it. Agents would take
 * it for a hang. */
static void stop_and_go_on(dlc_hub *hub) {
    if (hub->remotes)
        return;
    signal_ranks(hub, SIGSTOP);
    raise(SIGSTOP);
    signal_ranks(hub, SIGCONT);
    dlc_hub_watch_anew(hub);
}

static void read_signals(dlc_hub *hub) {
    struct signalfd_siginfo info;
    while (read(hub->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            find_dead(hub);
        else if (info.ssi_signo == SIGTSTP)
            stop_and_go_on(hub);
        else
            dlc_hub_signal(hub, (int)info.ssi_signo, &hub->stop_time);
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
    uint64_t now = dlc_now_ns(), next = UINT64_MAX;
    uint64_t times[] = {hub->kill_at, hub->leave_at, hub->say_cause_at,
                        hub->gate && !hub->told ? hub->join_by : 0,
                        hub->remotes || hub->deadline > 0 ? hub->beat + DLC_BEAT_NS
                                                          : 0};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i] && times[i] < next)
            next = times[i];
    if (next == UINT64_MAX)
        return -1;
    return now >= next ? 0 : (int)((next - now) / 1000000u) + 1;
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
    uint64_t now = dlc_now_ns();
    char name[128];
    if (hub->leave_at && now >= hub->leave_at) {
        hub->leave_at = 0;
        for (int r = 0; r < hub->ranks; r++)
            if (hub->peer[r].remote)
                hub->peer[r].running = 0;
    }
    if (!hub->kill_at || now < hub->kill_at)
        return;
    for (int r = 0; r < hub->ranks; r++) {
        if (!hub->peer[r].running || (hub->peer[r].remote && !hub->peer[r].joined))
            continue;
        dlc_hub_name(hub, r, name, sizeof name);
        dlc_warn("%s did not end in time and is killed", name);
    }
    kill_ranks(hub);
}

static dlc_status turn(dlc_hub *hub, struct pollfd *polled) {
    struct pollfd *at_gate = polled + 2 + 2 * (size_t)hub->ranks;
    poll_set(hub, polled);
    if (hub->gate)
        dlc_gate_poll_set(hub->gate, at_gate);
    nfds_t count = 2 + 2 * (nfds_t)hub->ranks + (hub->gate ? DLC_GATE_POLLED : 0);
    if (poll(polled, count, poll_timeout(hub)) < 0)
        return errno == EINTR ? DLC_OK
                              : dlc_fail(DLC_ERR_IO, "the launcher cannot poll: %s",
                                         strerror(errno));
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        if (polled[2 + 2 * r].revents & ~POLLOUT)
            dlc_hub_read(hub, r);
        if (polled[3 + 2 * r].revents)
            dlc_output_read(&peer->output);
    }
    if (polled[0].revents)
        read_signals(hub);
    if (polled[1].revents)
        write_output(hub);
    if (hub->gate)
        dlc_hub_join(hub, at_gate);
    if ((hub->remotes || hub->deadline > 0) &&
        dlc_now_ns() - hub->beat >= DLC_BEAT_NS) {
        find_dead(hub); /* a thread that was there before us may have had the signal */
        dlc_hub_watch(hub);
    }
    kill_late(hub);
    if (hub->say_cause_at && dlc_now_ns() >= hub->say_cause_at)
        say_cause(hub);
    for (int r = 0; r < hub->ranks; r++) {
        dlc_hub_flush(hub, r);
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

int dlc_hub_exit_code(const dlc_hub *hub) {
    return hub->lost          ? dlc_exit_code(DLC_ERR_PEER)
           : hub->failure     ? hub->failure
           : hub->stop_signal ? 128 + hub->stop_signal
                              : 0;
}

dlc_status dlc_hub_run(dlc_hub *hub, int *exit_code) {
    struct pollfd *polled = dlc_alloc(2 + 2 * (size_t)hub->ranks + DLC_GATE_POLLED,
                                      sizeof *polled);
    if (!polled)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    dlc_hub_watch_anew(hub);
    /* Ranks that come too late for a job that has failed should learn of it at once. */
    while (status == DLC_OK &&
           (running(hub) || (hub->gate && hub->told && hub->kill_at)))
        status = turn(hub, polled);
    if (hub->say_cause_at)
        say_cause(hub);
    dlc_free(polled);
    if (status == DLC_OK)
        *exit_code = dlc_hub_exit_code(hub);
    dlc_hub_farewell(hub, status == DLC_OK ? *exit_code : dlc_exit_code(status));
    return status;
}
