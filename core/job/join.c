/* How agents come to the hub and leave it: see hub.h and gate.h. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/agent.h"
#include "job/hub.h"

/* So long nobody wonders why nothing happens. */
#define PATIENCE_NS 5000000000u

/* So long the agents have for hearing how the job ended. */
#define FAREWELL_NS 500000000u

/* ---- In ------------------------------------------------------------------------ */

/* Nothing can come of this job. */
static dlc_join_verdict contradiction(dlc_hub *hub, const dlc_hello *hello,
                                      dlc_join_verdict verdict, const char *what) {
    char text[400];
    snprintf(text, sizeof text, "rank %u (host %s) %s", hello->rank, hello->host, what);
    dlc_hub_tell(hub, DLC_ERR_CONFIG, text);
    return verdict;
}

static dlc_join_verdict judge(void *context, const dlc_hello *hello,
                              dlc_welcome *welcome) {
    dlc_hub *hub = context;
    char text[256];
    if (hub->told || hub->killed) {
        welcome->number = (uint32_t)dlc_hub_exit_code(hub);
        return DLC_JOIN_OVER;
    }
    if (hello->protocol != DLC_PROTOCOL || strcmp(hello->version, DLC_VERSION) != 0) {
        snprintf(welcome->text, sizeof welcome->text, "%s", DLC_VERSION);
        snprintf(text, sizeof text, "runs dlcore %s, rank 0 runs %s", hello->version,
                 DLC_VERSION);
        return contradiction(hub, hello, DLC_JOIN_VERSION, text);
    }
    if (hello->ranks != (uint32_t)hub->ranks || hello->rank >= hello->ranks) {
        welcome->number = (uint32_t)hub->ranks;
        snprintf(text, sizeof text, "was told of %u ranks, rank 0 of %d", hello->ranks,
                 hub->ranks);
        return contradiction(hub, hello, DLC_JOIN_RANKS, text);
    }
    const dlc_peer *peer = &hub->peer[hello->rank];
    if (!peer->remote || peer->joined) {
        welcome->number = (uint32_t)peer->pid;
        snprintf(welcome->text, sizeof welcome->text, "%s", peer->host);
        snprintf(text, sizeof text,
                 "is two processes: pid %u claims it, too, after one on %s", hello->pid,
                 peer->host);
        return contradiction(hub, hello, DLC_JOIN_TAKEN, text);
    }
    if (hello->digest != hub->digest)
        return contradiction(hub, hello, DLC_JOIN_SETTINGS,
                             "has another net.ini or command line than rank 0");
    return DLC_JOIN_WELCOME;
}

static void enter(void *context, const dlc_hello *hello, int fd) {
    dlc_hub *hub = context;
    dlc_peer *peer = &hub->peer[hello->rank];
    peer->control = fd;
    peer->joined = 1;
    peer->pid = (pid_t)hello->pid; /* until the first pulse */
    snprintf(peer->host, sizeof peer->host, "%s", hello->host);
    peer->moved = peer->worked = peer->alive = peer->heard = dlc_now_ns();
}

void dlc_hub_open_gate(dlc_hub *hub, dlc_gate *gate) {
    gate->judge = judge;
    gate->enter = enter;
    gate->context = hub;
    hub->gate = gate;
    hub->say_at = dlc_now_ns() + PATIENCE_NS;
    hub->join_by = dlc_now_ns() + (uint64_t)(hub->rendezvous * 1e9);
}

/* "rank 1, 3 to 5, 7": those that are missing. */
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

static void give_up_waiting(dlc_hub *hub) {
    dlc_text text = {0};
    dlc_text_add(&text,
                 "not all of %d ranks have come within %g s ([parallel] rendezvous_timeout): "
                 "missing ",
                 hub->ranks, hub->rendezvous);
    missing_text(hub, &text);
    dlc_hub_tell(hub, DLC_ERR_PEER, dlc_text_string(&text));
    dlc_text_free(&text);
}

static void say_who_is_missing(dlc_hub *hub) {
    dlc_text text = {0};
    missing_text(hub, &text);
    dlc_info("waiting at %s for %s", hub->where, dlc_text_string(&text));
    dlc_text_free(&text);
    hub->say_at = 0;
}

/* Those that were never there need not be waited for. */
static void forget_missing(dlc_hub *hub) {
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].remote && !hub->peer[r].joined)
            hub->peer[r].running = 0;
}

void dlc_hub_join(dlc_hub *hub, const struct pollfd *polled) {
    int missing = 0;
    dlc_gate_turn(hub->gate, polled);
    for (int r = 0; r < hub->ranks; r++)
        missing += hub->peer[r].remote && !hub->peer[r].joined;
    uint64_t now = dlc_now_ns();
    if (missing && !hub->told && hub->say_at && now >= hub->say_at)
        say_who_is_missing(hub);
    if (missing && !hub->told && now >= hub->join_by)
        give_up_waiting(hub);
    if (hub->told || hub->killed)
        forget_missing(hub);
    if (missing)
        return;
    dlc_gate_close(hub->gate);
    hub->gate = NULL;
    dlc_hub_watch_anew(hub);
}

/* ---- Out ----------------------------------------------------------------------- */

/* Sends what is queued and hears the agent out: closed with bytes unread, a connection
 * would take those on their way with it. */
static int say_goodbye(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    char nowhere[4096];
    dlc_hub_flush(hub, rank);
    if (!peer->out.length)
        (void)shutdown(peer->control, SHUT_WR);
    ssize_t got;
    do
        got = recv(peer->control, nowhere, sizeof nowhere, MSG_DONTWAIT);
    while (got > 0);
    return got == 0;
}

void dlc_hub_farewell(dlc_hub *hub, int exit_code) {
    dlc_frame done = {.kind = DLC_FRAME_DONE, .number = exit_code};
    uint64_t start = dlc_now_ns();
    int left = 0;
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].remote && hub->peer[r].control >= 0) {
            dlc_hub_send(hub, r, &done, NULL);
            left++;
        }
    while (left && dlc_now_ns() - start < FAREWELL_NS) {
        left = 0;
        for (int r = 0; r < hub->ranks; r++) {
            dlc_peer *peer = &hub->peer[r];
            if (!peer->remote || peer->control < 0)
                continue;
            if (say_goodbye(hub, r)) {
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
