/* How agents join the hub (its decisions for the acceptor) and leave it (the shutdown
 * handshake). */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "job/agent.h"
#include "job/hub.h"

/* After this time a user wonders why nothing happens, so missing ranks are logged. */
#define QUIET_WAIT_NS 5000000000u

/* How long to wait for agents to read the job's exit code. */
#define SHUTDOWN_NS 500000000u

/* ---- Joining ------------------------------------------------------------------- */

/* Aborts a job whose ranks do not fit together; `what` completes the message. */
static dlc_join_verdict refuse_and_abort(dlc_hub *hub, const dlc_hello *hello,
                                         dlc_join_verdict verdict, const char *what) {
    char text[400];
    snprintf(text, sizeof text, "rank %u (host %s) %s", hello->rank, hello->host, what);
    dlc_hub_abort(hub, DLC_ERR_CONFIG, text);
    return verdict;
}

static dlc_join_verdict verify(void *context, const dlc_hello *hello,
                               dlc_welcome *welcome) {
    dlc_hub *hub = context;
    char text[256];
    if (hub->aborting || hub->killed) {
        welcome->number = (uint32_t)dlc_hub_exit_code(hub);
        return DLC_JOIN_OVER;
    }
    if (hello->protocol != DLC_PROTOCOL || strcmp(hello->version, DLC_VERSION) != 0) {
        snprintf(welcome->text, sizeof welcome->text, "%s", DLC_VERSION);
        snprintf(text, sizeof text, "runs dlcore %s, rank 0 runs %s", hello->version,
                 DLC_VERSION);
        return refuse_and_abort(hub, hello, DLC_JOIN_VERSION, text);
    }
    if (hello->ranks != (uint32_t)hub->ranks || hello->rank >= hello->ranks) {
        welcome->number = (uint32_t)hub->ranks;
        snprintf(text, sizeof text, "expects %u ranks, rank 0 expects %d", hello->ranks,
                 hub->ranks);
        return refuse_and_abort(hub, hello, DLC_JOIN_RANKS, text);
    }
    const dlc_peer *peer = &hub->peer[hello->rank];
    if (!peer->remote || peer->joined) {
        welcome->number = (uint32_t)peer->pid;
        snprintf(welcome->text, sizeof welcome->text, "%s", peer->host);
        snprintf(text, sizeof text,
                 "has been started twice: as pid %u, after a process on %s", hello->pid,
                 peer->host);
        return refuse_and_abort(hub, hello, DLC_JOIN_TAKEN, text);
    }
    return DLC_JOIN_WELCOME;
}

static void admit(void *context, const dlc_hello *hello, int fd) {
    dlc_hub *hub = context;
    dlc_peer *peer = &hub->peer[hello->rank];
    peer->control = fd;
    peer->joined = 1;
    peer->pid = (pid_t)hello->pid; /* the agent's, until the first heartbeat */
    snprintf(peer->host, sizeof peer->host, "%s", hello->host);
    peer->last_progress = peer->last_busy = peer->last_check = peer->last_heard =
        dlc_now_ns();
}

void dlc_hub_open_acceptor(dlc_hub *hub, dlc_acceptor *acceptor) {
    acceptor->verify = verify;
    acceptor->admit = admit;
    acceptor->context = hub;
    hub->acceptor = acceptor;
    hub->report_missing_at = dlc_awake_ns() + QUIET_WAIT_NS;
    hub->join_by = dlc_awake_ns() + (uint64_t)(hub->rendezvous_timeout * 1e9);
}

/* Writes the missing ranks: "rank 1, 3 to 5, 7". */
static void missing_text(const dlc_hub *hub, dlc_text *text) {
    int count = 0;
    dlc_text_add(text, "rank ");
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        if (!peer->remote || peer->joined)
            continue;
        int last = r;
        while (last + 1 < hub->ranks && hub->peer[last + 1].remote &&
               !hub->peer[last + 1].joined)
            last++;
        dlc_text_add(text, "%s%d", count++ ? ", " : "", r);
        if (last > r)
            dlc_text_add(text, " to %d", last);
        r = last;
    }
}

static void abort_missing(dlc_hub *hub) {
    char files[DLC_FILES_TEXT];
    dlc_text text = {0};
    dlc_text_add(&text,
                 "not all of the %d ranks have joined within %g s ([parallel] "
                 "rendezvous_timeout): missing ",
                 hub->ranks, hub->rendezvous_timeout);
    missing_text(hub, &text);
    dlc_text_add(&text, "; rank 0 listens at %s", hub->listen_address);
    if (hub->acceptor->out_of_files)
        dlc_text_add(&text, ", but could not accept all connections%s",
                     dlc_files_limit(files));
    dlc_hub_abort(hub, DLC_ERR_PEER, dlc_text_string(&text));
    dlc_text_free(&text);
}

static void log_missing(dlc_hub *hub) {
    dlc_text text = {0};
    missing_text(hub, &text);
    dlc_info("waiting at %s for %s", hub->listen_address, dlc_text_string(&text));
    dlc_text_free(&text);
    hub->report_missing_at = 0;
}

/* Ranks that have never joined need not be waited for. */
static void forget_missing(dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].remote && !hub->peer[r].joined)
            hub->peer[r].running = 0;
}

void dlc_hub_accept_agents(dlc_hub *hub, const struct pollfd *polled) {
    int missing = 0;
    dlc_acceptor_handle_events(hub->acceptor, polled);
    for (int r = 0; r < hub->ranks; r++)
        missing += hub->peer[r].remote && !hub->peer[r].joined;
    uint64_t now = dlc_awake_ns();
    if (missing && !hub->aborting && hub->report_missing_at &&
        now >= hub->report_missing_at)
        log_missing(hub);
    if (missing && !hub->aborting && now >= hub->join_by)
        abort_missing(hub);
    if (hub->aborting || hub->killed)
        forget_missing(hub);
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
    dlc_peer *peer = &hub->peer[rank];
    char discarded[4096];
    dlc_hub_flush(hub, rank);
    if (!peer->out.length)
        (void)shutdown(peer->control, SHUT_WR);
    ssize_t got;
    do
        got = recv(peer->control, discarded, sizeof discarded, MSG_DONTWAIT);
    while (got > 0);
    return got == 0;
}

void dlc_hub_shutdown_agents(dlc_hub *hub, int exit_code) {
    dlc_frame done = {.kind = DLC_FRAME_DONE, .number = exit_code};
    uint64_t start = dlc_now_ns();
    int left = 0;
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].remote && hub->peer[r].control >= 0) {
            dlc_hub_send(hub, r, &done, NULL);
            left++;
        }
    while (left && dlc_now_ns() - start < SHUTDOWN_NS) {
        left = 0;
        for (int r = 0; r < hub->ranks; r++) {
            dlc_peer *peer = &hub->peer[r];
            if (!peer->remote || peer->control < 0)
                continue;
            if (shut_down_peer(hub, r)) {
                close(peer->control);
                peer->control = -1;
            } else {
                left++;
            }
        }
        if (left)
            (void)poll(NULL, 0, 5);
    }
}
