/* Lets agents join the hub, and tells them the job's exit code when they leave. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "job/hub/hub.h"

/* After this time a user wonders why nothing happens, so missing ranks are logged. */
#define QUIET_WAIT_NS 5000000000u

/* How long to wait for agents to read the job's exit code. */
#define SHUTDOWN_NS 500000000u

/* ---- Joining ------------------------------------------------------------------- */

/* Checks a client that knows the secret. Ranks that do not fit together abort the job.
 */
static dlc_join_verdict verify_agent(void *context, const dlc_hello *hello,
                                     dlc_welcome *welcome) {
    dlc_hub *hub = context;
    if (hub->aborting || hub->killed) {
        welcome->number = (uint32_t)dlc_hub_exit_code(hub);
        return DLC_JOIN_OVER;
    }
    if (hello->protocol != DLC_PROTOCOL || strcmp(hello->version, DLC_VERSION) != 0) {
        snprintf(welcome->text, sizeof welcome->text, "%s", DLC_VERSION);
        dlc_hub_abort(hub, DLC_ERR_CONFIG,
                      "rank %u (host %s) runs dlcore %s, rank 0 runs %s", hello->rank,
                      hello->host, hello->version, DLC_VERSION);
        return DLC_JOIN_VERSION;
    }
    if (hello->ranks != (uint32_t)hub->ranks || hello->rank >= hello->ranks) {
        welcome->number = (uint32_t)hub->ranks;
        dlc_hub_abort(hub, DLC_ERR_CONFIG,
                      "rank %u (host %s) expects %u ranks, rank 0 expects %d",
                      hello->rank, hello->host, hello->ranks, hub->ranks);
        return DLC_JOIN_RANKS;
    }
    const dlc_peer *peer = &hub->peer[hello->rank];
    if (!peer->remote || peer->joined) {
        welcome->number = (uint32_t)peer->pid;
        snprintf(welcome->text, sizeof welcome->text, "%s", peer->host);
        dlc_hub_abort(hub, DLC_ERR_CONFIG,
                      "rank %u (host %s) has been started twice: as pid %u, after a "
                      "process on %s",
                      hello->rank, hello->host, hello->pid, peer->host);
        return DLC_JOIN_TAKEN;
    }
    return DLC_JOIN_WELCOME;
}

static void admit_agent(void *context, const dlc_hello *hello, int fd) {
    dlc_hub *hub = context;
    dlc_peer *peer = &hub->peer[hello->rank];
    peer->channel.fd = fd;
    peer->joined = 1;
    peer->pid = (pid_t)hello->pid; /* the agent's, until the first heartbeat */
    snprintf(peer->host, sizeof peer->host, "%s", hello->host);
    peer->last_progress = peer->last_busy = peer->last_check = peer->last_heard =
        dlc_now_ns();
}

void dlc_hub_open_acceptor(dlc_hub *hub, dlc_acceptor *acceptor) {
    acceptor->verify = verify_agent;
    acceptor->admit = admit_agent;
    acceptor->context = hub;
    hub->acceptor = acceptor;
    hub->report_missing_at = dlc_awake_ns() + QUIET_WAIT_NS;
    hub->join_by = dlc_awake_ns() + (uint64_t)(hub->rendezvous_timeout * 1e9);
}

static int is_missing(const dlc_peer *peer) {
    return peer->remote && !peer->joined;
}

/* Writes the missing ranks: "rank 1, 3 to 5, 7". */
static void missing_text(const dlc_hub *hub, dlc_text *text) {
    const char *separator = "rank ";
    for (int r = 0; r < hub->ranks; r++) {
        int first = r;
        if (!is_missing(&hub->peer[r]))
            continue;
        while (r + 1 < hub->ranks && is_missing(&hub->peer[r + 1]))
            r++;
        dlc_text_add(text, "%s%d", separator, first);
        if (r > first)
            dlc_text_add(text, " to %d", r);
        separator = ", ";
    }
}

static void abort_missing(dlc_hub *hub) {
    int out_of_files = hub->acceptor->out_of_files;
    char files[DLC_FILES_TEXT];
    dlc_text missing = {0};
    missing_text(hub, &missing);
    dlc_hub_abort(hub, DLC_ERR_PEER,
                  "not all of the %d ranks have joined within %g s ([parallel] "
                  "rendezvous_timeout): missing %s; rank 0 listens at %s%s%s",
                  hub->ranks, hub->rendezvous_timeout, dlc_text_string(&missing),
                  hub->listen_address,
                  out_of_files ? ", but could not accept all connections" : "",
                  out_of_files ? dlc_files_limit(files) : "");
    dlc_text_free(&missing);
}

static void log_missing(dlc_hub *hub) {
    dlc_text missing = {0};
    missing_text(hub, &missing);
    dlc_info("waiting at %s for %s", hub->listen_address, dlc_text_string(&missing));
    dlc_text_free(&missing);
    hub->report_missing_at = 0;
}

void dlc_hub_accept_agents(dlc_hub *hub, const struct pollfd *polled) {
    int missing = 0;
    dlc_acceptor_handle_events(hub->acceptor, polled);
    for (int r = 0; r < hub->ranks; r++)
        missing += is_missing(&hub->peer[r]);
    uint64_t now = dlc_awake_ns();
    if (missing && !hub->aborting && hub->report_missing_at &&
        now >= hub->report_missing_at)
        log_missing(hub);
    if (missing && !hub->aborting && now >= hub->join_by)
        abort_missing(hub);
    for (int r = 0; r < hub->ranks && (hub->aborting || hub->killed); r++)
        if (is_missing(&hub->peer[r]))
            hub->peer[r].running = 0; /* it need not be waited for */
    if (missing)
        return;
    dlc_acceptor_close(hub->acceptor);
    hub->acceptor = NULL;
    dlc_hub_watchdog_reset(hub);
}

/* ---- Leaving ------------------------------------------------------------------- */

/* Sends what is queued and reads until the agent closes: closing a connection with
 * unread bytes would discard those still being sent. Returns 1 when done. */
static int shut_down_peer(dlc_hub *hub, int rank) {
    dlc_channel *channel = &hub->peer[rank].channel;
    char discarded[4096];
    dlc_hub_flush(hub, rank);
    if (!dlc_channel_has_output(channel))
        (void)shutdown(channel->fd, SHUT_WR);
    ssize_t got;
    do
        got = recv(channel->fd, discarded, sizeof discarded, MSG_DONTWAIT);
    while (got > 0);
    return got == 0;
}

void dlc_hub_shutdown_agents(dlc_hub *hub, int exit_code) {
    const dlc_frame done = {.kind = DLC_FRAME_DONE, .number = exit_code};
    uint64_t start = dlc_now_ns();
    int left = 0;
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].remote && hub->peer[r].channel.fd >= 0) {
            dlc_hub_send(hub, r, &done, NULL);
            left++;
        }
    while (left && dlc_now_ns() - start < SHUTDOWN_NS) {
        left = 0;
        for (int r = 0; r < hub->ranks; r++) {
            if (!hub->peer[r].remote || hub->peer[r].channel.fd < 0)
                continue;
            if (shut_down_peer(hub, r))
                dlc_channel_close(&hub->peer[r].channel);
            else
                left++;
        }
        if (left)
            (void)poll(NULL, 0, 5);
    }
}
