/* Opens the hub, and runs its poll loop: frames and output of the ranks, the ends of
 * children, signals, and what is due at some moment. */
#include "job/hub/hub.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* ---- Opening and closing -------------------------------------------------------- */

dlc_status dlc_hub_open(int ranks, double hang_timeout, dlc_hub *hub) {
    dlc_peer *peers = dlc_alloc((size_t)ranks, sizeof *peers);
    if (!peers)
        return DLC_ERR_NOMEM;
    *hub = (dlc_hub){
        .ranks = ranks, .peer = peers, .signals = -1, .hang_timeout = hang_timeout};
    for (int r = 0; r < ranks; r++) {
        peers[r].channel.fd = peers[r].output.fd = -1;
        peers[r].output.rank = r;
        dlc_host_name(peers[r].host, sizeof peers[r].host);
    }
    return DLC_OK;
}

void dlc_hub_close(dlc_hub *hub) {
    if (!hub->peer)
        return;
    for (int r = 0; r < hub->ranks; r++) {
        dlc_channel_close(&hub->peer[r].channel);
        dlc_close(&hub->peer[r].output.fd);
        dlc_payload_free(&hub->peer[r].part);
    }
    dlc_close(&hub->signals);
    dlc_free(hub->result);
    dlc_free(hub->peer);
    *hub = (dlc_hub){.signals = -1};
}

void dlc_hub_attach_child(dlc_hub *hub, int rank, dlc_rank_process *child,
                          dlc_shared_activity *activity) {
    dlc_peer *peer = &hub->peer[rank];
    peer->channel.fd = child->control;
    peer->output.fd = child->output;
    peer->activity = activity;
    peer->pid = child->pid;
    peer->running = 1;
    *child = (dlc_rank_process){.control = -1, .output = -1};
}

/* ---- Children ------------------------------------------------------------------- */

/* Waits for ended processes. Last of all, because the kernel has been seen to take
 * seconds for it. */
static void wait_for_zombies(dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++) {
        if (hub->peer[r].zombie)
            (void)dlc_process_wait(hub->peer[r].pid);
        hub->peer[r].zombie = 0;
    }
}

static int is_running_child(const dlc_peer *peer) {
    return peer->running && peer->pid && !peer->remote;
}

void dlc_hub_kill(dlc_hub *hub) {
    dlc_hub_kill_ranks(hub);
    for (int r = 0; r < hub->ranks; r++) {
        hub->peer[r].zombie |= is_running_child(&hub->peer[r]);
        hub->peer[r].running = 0;
    }
    wait_for_zombies(hub);
}

/* Handles all ranks that have ended, those killed by a signal first: the others may
 * have ended because of them. */
static void find_ended(dlc_hub *hub) {
    for (int killed = 1; killed >= 0; killed--)
        for (int r = 0; r < hub->ranks; r++) {
            dlc_peer *peer = &hub->peer[r];
            dlc_ending how;
            if (!is_running_child(peer) || !dlc_process_has_ended(peer->pid, &how) ||
                (killed && !how.by_signal))
                continue;
            peer->zombie = 1;
            if (peer->channel.fd >= 0)
                dlc_hub_read(hub, r); /* why it failed */
            dlc_channel_close(&peer->channel);
            dlc_hub_rank_ended(hub, r, how.by_signal, how.number);
        }
    wait_for_zombies(hub);
}

/* ---- Signals -------------------------------------------------------------------- */

/* Ctrl-Z reaches only the launcher; its children stop and continue with it. To agents
 * it would look like a hang. */
static void stop_and_continue(dlc_hub *hub) {
    if (hub->remotes)
        return;
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_kill_rank(hub, r, SIGSTOP);
    raise(SIGSTOP);
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_kill_rank(hub, r, SIGCONT);
    dlc_hub_watchdog_reset(hub);
}

static void read_hub_signals(dlc_hub *hub) {
    for (int signal; (signal = dlc_signals_next(hub->signals));)
        if (signal == SIGCHLD)
            find_ended(hub);
        else if (signal == SIGTSTP)
            stop_and_continue(hub);
        else
            dlc_hub_signal(hub, signal, &hub->stop_time);
}

/* ---- The loop ------------------------------------------------------------------- */

/* Fills in what to poll for: signals, stderr, then control and output of each rank. */
static void fill_poll_set(const dlc_hub *hub, struct pollfd *polled) {
    int pending = 0;
    polled[0] = (struct pollfd){.fd = hub->signals, .events = POLLIN};
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        int sends = dlc_channel_has_output(&peer->channel);
        polled[2 + 2 * r] = (struct pollfd){
            .fd = peer->channel.fd, .events = (short)(POLLIN | (sends ? POLLOUT : 0))};
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

static int hub_timeout(const dlc_hub *hub) {
    uint64_t waited = dlc_now_ns() - hub->last_heartbeat;
    uint64_t left = waited < DLC_HEARTBEAT_NS ? DLC_HEARTBEAT_NS - waited : 0;
    const uint64_t moments[] = {hub->kill_at, hub->abandon_at, hub->report_cause_at,
                                hub->acceptor && !hub->aborting ? hub->join_by : 0,
                                takes_heartbeats(hub) ? dlc_awake_ns() + left : 0};
    return dlc_poll_until(moments, sizeof moments / sizeof *moments);
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

static void kill_late_ranks(dlc_hub *hub) {
    uint64_t now = dlc_awake_ns();
    if (hub->abandon_at && now >= hub->abandon_at) {
        hub->abandon_at = 0;
        for (int r = 0; r < hub->ranks; r++)
            if (hub->peer[r].remote)
                hub->peer[r].running = 0;
    }
    if (!hub->kill_at || now < hub->kill_at)
        return;
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running && (!hub->peer[r].remote || hub->peer[r].joined))
            dlc_warn("%s did not end in time: killing it",
                     dlc_hub_describe(hub, r).name);
    dlc_hub_kill_ranks(hub);
}

/* What is due twice a second. */
static void watch_ranks(dlc_hub *hub) {
    find_ended(hub); /* SIGCHLD may have gone to another thread */
    if (dlc_launcher_is_gone(&hub->parent))
        dlc_hub_signal(hub, SIGTERM, &hub->stop_time);
    dlc_hub_watchdog_check(hub);
}

static dlc_status run_once(dlc_hub *hub, struct pollfd *polled) {
    nfds_t count = 2 + 2 * (nfds_t)hub->ranks;
    struct pollfd *accepting = polled + count;
    fill_poll_set(hub, polled);
    if (hub->acceptor) {
        dlc_acceptor_poll_set(hub->acceptor, accepting);
        count += DLC_ACCEPTOR_POLLED;
    }
    if (poll(polled, count, hub_timeout(hub)) < 0)
        return errno == EINTR ? DLC_OK
                              : dlc_fail(DLC_ERR_IO, "the launcher cannot poll: %s",
                                         strerror(errno));
    for (int r = 0; r < hub->ranks; r++) {
        if (polled[2 + 2 * r].revents & ~POLLOUT)
            dlc_hub_read(hub, r);
        if (polled[3 + 2 * r].revents)
            dlc_output_read(&hub->peer[r].output);
    }
    if (polled[0].revents)
        read_hub_signals(hub);
    if (polled[1].revents)
        write_output(hub);
    if (hub->acceptor)
        dlc_hub_accept_agents(hub, accepting);
    if (takes_heartbeats(hub) && dlc_now_ns() - hub->last_heartbeat >= DLC_HEARTBEAT_NS)
        watch_ranks(hub);
    kill_late_ranks(hub);
    if (hub->report_cause_at && dlc_awake_ns() >= hub->report_cause_at)
        dlc_hub_log_cause(hub);
    for (int r = 0; r < hub->ranks; r++) {
        dlc_hub_flush(hub, r);
        DLC_TRY(dlc_text_status(&hub->peer[r].channel.out));
    }
    return DLC_OK;
}

static int is_any_running(const dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running)
            return 1;
    return 0;
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
           (is_any_running(hub) || (hub->acceptor && hub->aborting && hub->kill_at)))
        status = run_once(hub, polled);
    if (hub->report_cause_at)
        dlc_hub_log_cause(hub);
    dlc_free(polled);
    if (status == DLC_OK)
        *exit_code = dlc_hub_exit_code(hub);
    dlc_hub_shutdown_agents(hub, status == DLC_OK ? *exit_code : dlc_exit_code(status));
    return status;
}
