/* The hub's poll loop: sends to ranks, notices their ends, handles signals, and decides
 * the exit code. */
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
#include "job/job.h"
#include "job/signals.h"

/* How long to wait for agents to confirm that their ranks were killed. */
#define ABANDON_NS 1000000000u

/* How long to wait whether all ranks fail for the same reason as the first. */
#define SAME_FAILURE_NS 300000000u

/* ---- Sending ---------------------------------------------------------------- */

static void close_control(dlc_peer *peer) {
    if (peer->control >= 0)
        close(peer->control);
    peer->control = -1;
}

/* A rank that cannot be sent to would wait until the watchdog finds it. Without its
 * channel it ends by itself. */
static void handle_send_error(dlc_hub *hub, int rank, int error) {
    dlc_peer *peer = &hub->peer[rank];
    char name[128], text[320];
    snprintf(text, sizeof text, "it cannot be sent to: %s",
             strerror(error)); // NOLINT(concurrency-mt-unsafe)
    if (peer->remote) {
        dlc_hub_lost_rank(hub, rank, text);
        return;
    }
    close_control(peer);
    dlc_hub_name(hub, rank, name, sizeof name);
    snprintf(text, sizeof text, "%s cannot be sent to: %s", name,
             strerror(error)); // NOLINT(concurrency-mt-unsafe)
    dlc_hub_abort(hub, DLC_ERR_IO, text);
}

/* A closed channel is ignored here: poll() reports it. */
static size_t send_some(dlc_hub *hub, int rank, const char *bytes, size_t length) {
    ssize_t done = send(hub->peer[rank].control, bytes, length,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done >= 0)
        return (size_t)done;
    if (!dlc_send_is_full(errno) && !dlc_send_is_closed(errno))
        handle_send_error(hub, rank, errno);
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

void dlc_hub_send_abort(dlc_hub *hub, dlc_status status, const char *text) {
    if (hub->aborting)
        return;
    hub->aborting = 1;
    hub->kill_at = dlc_awake_ns() + DLC_GRACE_NS;
    dlc_frame frame = {
        .kind = DLC_FRAME_ABORT, .number = status, .bytes = strlen(text)};
    for (int r = 0; r < hub->ranks; r++) {
        dlc_hub_send(hub, r, &frame, text);
        dlc_hub_flush(hub, r); /* now, since logging may take time */
    }
}

void dlc_hub_abort(dlc_hub *hub, dlc_status status, const char *text) {
    if (hub->aborting)
        return;
    if (status == DLC_ERR_PEER)
        hub->lost = 1;
    else
        hub->failure = dlc_exit_code(status);
    dlc_hub_send_abort(hub, status, text);
    dlc_error("%s", text);
}

void dlc_hub_kill_rank(dlc_hub *hub, int rank, int signal) {
    dlc_peer *peer = &hub->peer[rank];
    if (!peer->running)
        return;
    peer->killed_by_hub |= signal == SIGKILL;
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
    hub->abandon_at = dlc_awake_ns() + ABANDON_NS;
    signal_ranks(hub, SIGKILL);
}

/* Waits for ended processes. Last of all, because the kernel has been seen to take
 * seconds for it. */
static void reap(dlc_hub *hub) {
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
    reap(hub);
}

/* ---- The end of a rank ------------------------------------------------------ */

int dlc_hub_name(const dlc_hub *hub, int rank, char *text, size_t room) {
    const dlc_peer *peer = &hub->peer[rank];
    return snprintf(text, room, "rank %d (host %s, pid %d)", rank, peer->host,
                    (int)peer->pid);
}

/* What the rank was doing last: for a child, read from the shared memory. */
static void last_activity(const dlc_peer *peer, char text[DLC_ACTIVITY_TEXT]) {
    dlc_activity_text(
        peer->activity ? &peer->activity->current : &peer->heartbeat.activity, text);
}

/* Whether the cause concerns the whole job: all ranks failed alike, or it is bad input,
 * which every rank of a machine would reject. */
static int is_common(const dlc_hub *hub) {
    int same = 0;
    for (int r = 0; r < hub->ranks; r++)
        same += strcmp(hub->peer[r].failure, hub->cause->failure) == 0;
    return same == hub->ranks || (DLC_STATUS_CLASS(hub->cause->failed) == 4 &&
                                  strcmp(hub->cause->host, hub->peer[0].host) == 0);
}

static void log_cause(dlc_hub *hub) {
    char name[128];
    hub->report_cause_at = 0;
    dlc_hub_name(hub, (int)(hub->cause - hub->peer), name, sizeof name);
    if (is_common(hub))
        dlc_error("%s", hub->cause->failure);
    else
        dlc_error("%s: %s", name, hub->cause->failure);
}

/* Logs that a rank has ended with an exit code, as `text` says, unless it failed
 * because of another rank or for the same reason as the first. */
static void log_exit(dlc_hub *hub, const dlc_peer *peer, int first, const char *text) {
    if (first && peer->failed && peer->failed != DLC_ERR_PEER) {
        hub->cause = peer;
        hub->report_cause_at = dlc_awake_ns() + SAME_FAILURE_NS;
    } else if (first) {
        dlc_error("%s", text);
    } else if (peer->failed && peer->failed != DLC_ERR_PEER && !hub->killed &&
               (!hub->cause || strcmp(peer->failure, hub->cause->failure) != 0)) {
        dlc_error("%s", text);
    }
}

void dlc_hub_rank_ended(dlc_hub *hub, int rank, int by_signal, int number) {
    dlc_peer *peer = &hub->peer[rank];
    int by_hub = hub->killed || peer->killed_by_hub;
    int first = !hub->aborting && !hub->killed;
    int has_quit = !by_signal && !number && !peer->returned;
    int signal = by_signal ? number : 0, code = by_signal ? 0 : number + has_quit;
    char text[256 + DLC_FAILURE_TEXT], activity[DLC_ACTIVITY_TEXT];
    peer->running = 0;
    last_activity(peer, activity);
    int length = dlc_hub_name(hub, rank, text, sizeof text);
    char *what = text + length;
    size_t room = sizeof text - (size_t)length;
    if (signal) {
        snprintf(what, room, " was killed by signal %d (%s)%s", signal,
                 strsignal(signal), activity); // NOLINT(concurrency-mt-unsafe)
        hub->lost |= !by_hub;
    } else if (code) {
        if (peer->failed)
            snprintf(what, room, ": %s", peer->failure);
        else
            snprintf(what, room, " ended with exit code %d%s%s", number, activity,
                     has_quit ? " before its work was done: a plugin, or a library "
                                "that it uses, has called _exit()"
                              : "");
        if (first && code > hub->failure)
            hub->failure = code;
    }
    if (first && (signal || code))
        dlc_hub_send_abort(hub, DLC_ERR_PEER, text);
    dlc_output_drain(&peer->output, 1); /* its last output, before the report on it */
    if (signal && !by_hub)
        dlc_error("%s", text);
    else if (code)
        log_exit(hub, peer, first, text);
    if (!signal && !code)
        dlc_hub_call_check(hub);
}

void dlc_hub_lost_rank(dlc_hub *hub, int rank, const char *why) {
    dlc_peer *peer = &hub->peer[rank];
    char text[512], name[128], activity[DLC_ACTIVITY_TEXT];
    close_control(peer);
    if (!peer->running)
        return;
    peer->running = 0;
    if (hub->killed || peer->killed_by_hub)
        return;
    last_activity(peer, activity);
    dlc_hub_name(hub, rank, name, sizeof name);
    snprintf(text, sizeof text, "lost %s%s: %s", name, activity, why);
    if (!hub->aborting) {
        dlc_hub_abort(hub, DLC_ERR_PEER, text);
        return;
    }
    hub->lost = 1;
    dlc_error("%s", text);
}

/* Handles all ranks that have ended, those killed by a signal first: the others may
 * have ended because of them. */
static void find_ended(dlc_hub *hub) {
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
            dlc_hub_rank_ended(hub, r, how.si_code != CLD_EXITED, how.si_status);
        }
    reap(hub);
}

/* ---- Signals ---------------------------------------------------------------- */

void dlc_hub_end_by_signal(dlc_hub *hub, int signal) {
    hub->stop_signal = signal;
    hub->lost = hub->failure = 0;
    kill_ranks(hub);
}

/* Some programs send a signal to all processes of a job: only a second signal to the
 * same process is a second request. */
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
        if (hub->acceptor) /* no rank has anything to save yet */
            kill_ranks(hub);
        send_request(hub, DLC_JOB_STOP);
    } else if (dlc_since(*stop_time) >= DLC_STOP_AGAIN_S && !hub->killed) {
        dlc_warn("second request to stop: killing the ranks");
        dlc_hub_end_by_signal(hub, signal);
    }
}

/* Ctrl-Z reaches only the launcher; its children stop and continue with it. To agents
 * it would look like a hang. */
static void stop_and_continue(dlc_hub *hub) {
    if (hub->remotes)
        return;
    signal_ranks(hub, SIGSTOP);
    raise(SIGSTOP);
    signal_ranks(hub, SIGCONT);
    dlc_hub_watchdog_reset(hub);
}

static void read_signals(dlc_hub *hub) {
    struct signalfd_siginfo info;
    while (read(hub->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            find_ended(hub);
        else if (info.ssi_signo == SIGTSTP)
            stop_and_continue(hub);
        else
            dlc_hub_signal(hub, (int)info.ssi_signo, &hub->stop_time);
    }
}

/* ---- The loop --------------------------------------------------------------- */

/* Fills in what to poll for: signals, stderr, then control and output of each rank. */
static void poll_set(const dlc_hub *hub, struct pollfd *polled) {
    int pending = 0;
    polled[0] = (struct pollfd){.fd = hub->signals, .events = POLLIN};
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        int sends = peer->out.length > 0 || peer->has_result;
        polled[2 + 2 * r] = (struct pollfd){
            .fd = peer->control, .events = (short)(POLLIN | (sends ? POLLOUT : 0))};
        polled[3 + 2 * r] = (struct pollfd){
            .fd = dlc_output_can_read(&peer->output) ? peer->output.fd : -1,
            .events = POLLIN};
        pending |= dlc_output_can_write(&peer->output);
    }
    polled[1] = (struct pollfd){.fd = pending ? STDERR_FILENO : -1, .events = POLLOUT};
}

static int takes_heartbeats(const dlc_hub *hub) {
    return hub->remotes || hub->hang_timeout > 0 || hub->stop_signal;
}

static int poll_timeout(const dlc_hub *hub) {
    uint64_t now = dlc_awake_ns(), next = UINT64_MAX;
    uint64_t waited = dlc_now_ns() - hub->last_heartbeat;
    uint64_t times[] = {
        hub->kill_at, hub->abandon_at, hub->report_cause_at,
        hub->acceptor && !hub->aborting ? hub->join_by : 0,
        takes_heartbeats(hub)
            ? now + DLC_HEARTBEAT_NS -
                  (waited < DLC_HEARTBEAT_NS ? waited : DLC_HEARTBEAT_NS)
            : 0};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i] && times[i] < next)
            next = times[i];
    if (next == UINT64_MAX)
        return -1;
    return now >= next ? 0 : (int)((next - now) / 1000000u) + 1;
}

/* Writes some output of each rank in turn; lines are never mixed. */
static void write_output(dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++) {
        struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (!dlc_output_can_write(&hub->peer[r].output))
            continue;
        if (poll(&writable, 1, 0) <= 0)
            return;
        dlc_output_write(&hub->peer[r].output);
    }
}

static void kill_late(dlc_hub *hub) {
    uint64_t now = dlc_awake_ns();
    char name[128];
    if (hub->abandon_at && now >= hub->abandon_at) {
        hub->abandon_at = 0;
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
        dlc_warn("%s did not end in time: killing it", name);
    }
    kill_ranks(hub);
}

static dlc_status step(dlc_hub *hub, struct pollfd *polled) {
    struct pollfd *accepting = polled + 2 + 2 * (size_t)hub->ranks;
    poll_set(hub, polled);
    if (hub->acceptor)
        dlc_acceptor_poll_set(hub->acceptor, accepting);
    nfds_t count = 2 + 2 * (nfds_t)hub->ranks +
                   (hub->acceptor ? DLC_ACCEPTOR_POLLED : 0);
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
    if (hub->acceptor)
        dlc_hub_accept_agents(hub, accepting);
    if (takes_heartbeats(hub) &&
        dlc_now_ns() - hub->last_heartbeat >= DLC_HEARTBEAT_NS) {
        find_ended(hub); /* SIGCHLD may have gone to another thread */
        if (dlc_launcher_is_gone(&hub->parent))
            dlc_hub_signal(hub, SIGTERM, &hub->stop_time);
        dlc_hub_watchdog_check(hub);
    }
    kill_late(hub);
    if (hub->report_cause_at && dlc_awake_ns() >= hub->report_cause_at)
        log_cause(hub);
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
    struct pollfd *polled = dlc_alloc(2 + 2 * (size_t)hub->ranks + DLC_ACCEPTOR_POLLED,
                                      sizeof *polled);
    if (!polled)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    dlc_hub_watchdog_reset(hub);
    /* Keep accepting for a moment after a failure, so that late ranks hear of it at
     * once. */
    while (status == DLC_OK &&
           (running(hub) || (hub->acceptor && hub->aborting && hub->kill_at)))
        status = step(hub, polled);
    if (hub->report_cause_at)
        log_cause(hub);
    dlc_free(polled);
    if (status == DLC_OK)
        *exit_code = dlc_hub_exit_code(hub);
    dlc_hub_shutdown_agents(hub, status == DLC_OK ? *exit_code : dlc_exit_code(status));
    return status;
}
