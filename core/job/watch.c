/* Who gets on and who doesn't: see hub.h.
 *
 * A rank moves when it says that it does something else (dlc_job_doing), and it works
 * while its process computes or waits for a disk. A rank that waits for another one
 * asks dlc_job_check over and over, or stands in a collective of the hub's. So
 *
 *   - who has neither moved nor worked nor asked for longer than the deadline hangs:
 *     it was stopped, or waits for something that will never come;
 *   - where all wait, and nobody has moved or worked for as long, a message was lost;
 *   - who works without moving (a huge layer, a test, a checkpoint on a slow disk) is
 *     named in a warning after the deadline, and has ten times the deadline, so long as
 *     the others wait for it;
 *   - a job that was asked to stop and in which a rank has not moved for the deadline
 *     since then is killed, whatever that rank does; who waits for a disk saves its
 * work and is waited for.
 *
 * Whoever waits is never the culprit.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/agent.h"
#include "job/hub.h"

/* Who waits asks much more often than this; pulses come twice a second. */
#define ASKS_WITHIN_S 1.5

static double since(uint64_t now, uint64_t then) {
    return now > then ? (double)(now - then) / 1e9 : 0;
}

/* ---- Pulses -------------------------------------------------------------------- */

void dlc_hub_pulse(dlc_hub *hub, int rank, const dlc_pulse *pulse) {
    dlc_peer *peer = &hub->peer[rank];
    uint64_t now = dlc_now_ns();
    if (pulse->steps != peer->pulse.steps)
        peer->moved = now;
    if (pulse->checks != peer->pulse.checks)
        peer->alive = now;
    if (pulse->worked)
        peer->worked = now;
    if (pulse->disk)
        peer->disk = now;
    peer->pulse = *pulse;
}

void dlc_hub_watch_anew(dlc_hub *hub) {
    uint64_t now = dlc_now_ns();
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        peer->moved = peer->worked = peer->alive = peer->heard = now;
        peer->disk = 0;
    }
    hub->beat = now;
}

static void take_pulses(dlc_hub *hub) {
    static const dlc_frame beat = {.kind = DLC_FRAME_PULSE};
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        if (peer->remote) {
            if (!peer->out.length)
                dlc_hub_send(hub, r, &beat, NULL);
        } else if (peer->running && peer->pid) {
            dlc_pulse pulse = dlc_pulse_take(peer->pid, peer->doing, &peer->last);
            dlc_hub_pulse(hub, r, &pulse);
        }
    }
}

/* ---- Judgement ----------------------------------------------------------------- */

typedef enum condition { MOVES, WAITS, WORKS, STANDS } condition;

static int is_stopped(const dlc_peer *peer) {
    return peer->pulse.state == 'T' || peer->pulse.state == 't';
}

static int is_recent(const dlc_hub *hub, uint64_t then, uint64_t now) {
    double within = 0.75 * hub->deadline;
    return since(now, then) < (within < ASKS_WITHIN_S ? within : ASKS_WITHIN_S);
}

static int asks(const dlc_hub *hub, const dlc_peer *peer, uint64_t now) {
    return !is_stopped(peer) && (peer->called || is_recent(hub, peer->alive, now));
}

static condition condition_of(const dlc_hub *hub, const dlc_peer *peer, uint64_t now) {
    if (since(now, peer->moved) <= hub->deadline)
        return MOVES;
    /* One of its threads may ask while another computes. */
    if (since(now, peer->worked) <= hub->deadline)
        return WORKS;
    if (asks(hub, peer, now))
        return WAITS;
    return since(now, peer->alive) <= hub->deadline ? WORKS : STANDS;
}

/* Is this the end? `culprit` is a rank, or -1 where all wait for each other. */
static int is_hung(const dlc_hub *hub, uint64_t now, int *culprit) {
    int moving = 0, working = 0, running = 0;
    double moved = 1e30; /* seconds since anybody has */
    *culprit = -1;
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        if (!peer->running)
            continue;
        condition is = condition_of(hub, peer, now);
        running++;
        moving += is == MOVES;
        working += is == WORKS;
        if (since(now, peer->moved) < moved)
            moved = since(now, peer->moved);
        if (is == STANDS && *culprit < 0)
            *culprit = r;
    }
    if (!running)
        return 0;
    if (*culprit >= 0)
        return 1;
    return !moving && (!working || moved > DLC_PATIENCE_WITH_WORK * hub->deadline);
}

/* ---- The report ---------------------------------------------------------------- */

/* "  rank 0 (host x, pid 76) waits for rank 1 since 2.0 s during backward conv2" */
static void describe(const dlc_hub *hub, int rank, int culprit, uint64_t now,
                     dlc_text *text) {
    const dlc_peer *peer = &hub->peer[rank];
    char name[128], doing[DLC_DOING_TEXT], waits[32] = "waits";
    condition is = condition_of(hub, peer, now);
    dlc_hub_name(hub, rank, name, sizeof name);
    dlc_words_text(&peer->pulse.words, doing);
    if (culprit >= 0)
        snprintf(waits, sizeof waits, "waits for rank %d", culprit);
    const char *does = is_stopped(peer) ? "stands still, stopped by a signal,"
                       : is_recent(hub, peer->moved, now) ? "gets on"
                       : asks(hub, peer, now)             ? waits
                       : is == STANDS                     ? "stands still"
                                                          : "computes";
    dlc_text_add(text, "\n  %s %s since %.1f s%s%s", name, does,
                 since(now, peer->moved), doing,
                 peer->called ? ", in a collective of set-up" : "");
}

static void summarize(const dlc_hub *hub, int culprit, uint64_t now, char *text,
                      size_t room) {
    char name[128], doing[DLC_DOING_TEXT];
    if (culprit < 0) {
        snprintf(text, room,
                 "no rank has made progress for more than %g s ([parallel] hang_timeout): all "
                 "wait for each other",
                 hub->deadline);
        return;
    }
    const dlc_peer *peer = &hub->peer[culprit];
    dlc_hub_name(hub, culprit, name, sizeof name);
    dlc_words_text(&peer->pulse.words, doing);
    snprintf(text, room, "%s hangs%s: no progress since %.1f s%s ([parallel] hang_timeout = %g)",
             name, is_stopped(peer) ? ", stopped by a signal" : "",
             since(now, peer->moved), doing, hub->deadline);
}

/* Logs the summary and a line for each rank that runs. */
static void list(const dlc_hub *hub, int culprit, uint64_t now, const char *summary) {
    dlc_text text = {0};
    dlc_text_add(&text, "%s", summary);
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running)
            describe(hub, r, culprit, now, &text);
    dlc_log_lines(DLC_LOG_ERROR, dlc_text_string(&text));
    dlc_text_free(&text);
}

static void report(dlc_hub *hub, int culprit, uint64_t now) {
    char summary[512];
    summarize(hub, culprit, now, summary, sizeof summary);
    hub->lost = 1;
    dlc_hub_send_news(hub, DLC_ERR_PEER, summary);
    list(hub, culprit, now, summary);
    /* Who stands still will not end when asked. */
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running && condition_of(hub, &hub->peer[r], now) == STANDS)
            dlc_hub_kill_rank(hub, r, SIGKILL);
}

/* The rank that the others wait for, because it computes; said once for each stall. */
static void warn_of_slow(dlc_hub *hub, uint64_t now) {
    dlc_peer *slow = NULL;
    uint64_t stalled = 0; /* when a rank last moved */
    char name[128], doing[DLC_DOING_TEXT];
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        condition is = peer->running ? condition_of(hub, peer, now) : WAITS;
        if (is == MOVES)
            return;
        /* Where the CPUs are busy, who waits may seem to work, too. */
        if (is == WORKS && (!slow || (asks(hub, slow, now) && !asks(hub, peer, now))))
            slow = peer;
        if (peer->moved > stalled)
            stalled = peer->moved;
    }
    if (!slow || hub->warned == stalled || !slow->pulse.steps)
        return;
    hub->warned = stalled;
    dlc_hub_name(hub, (int)(slow - hub->peer), name, sizeof name);
    dlc_words_text(&slow->pulse.words, doing);
    dlc_warn("%s has computed for %.0f s%s without getting on; after %g s ([parallel] "
             "deadline = %g, %d times) the job is ended",
             name, since(now, slow->moved), doing,
             DLC_PATIENCE_WITH_WORK * hub->deadline, hub->deadline,
             DLC_PATIENCE_WITH_WORK);
}

/* Asked to stop, and a rank has not got on for the whole deadline since. */
static int stops_too_late(const dlc_hub *hub, uint64_t now, int *rank) {
    if (!hub->stop_signal || hub->killed)
        return 0;
    for (*rank = 0; *rank < hub->ranks; ++*rank) {
        const dlc_peer *peer = &hub->peer[*rank];
        uint64_t last = peer->moved > peer->disk ? peer->moved : peer->disk;
        if (hub->stopped_at > last)
            last = hub->stopped_at;
        if (peer->running && condition_of(hub, peer, now) != WAITS &&
            since(now, last) > hub->deadline)
            return 1;
    }
    return 0;
}

static void end_late_stop(dlc_hub *hub, int rank, uint64_t now) {
    char name[128], doing[DLC_DOING_TEXT];
    dlc_hub_name(hub, rank, name, sizeof name);
    dlc_words_text(&hub->peer[rank].pulse.words, doing);
    dlc_warn(
        "asked to stop %.0f s ago, %s does not get on%s ([parallel] hang_timeout = %g): the "
        "ranks are killed",
        since(now, hub->stopped_at), name, doing, hub->deadline);
    dlc_hub_end_by_signal(hub, hub->stop_signal);
}

/* Agents that are heard of no more, or the machines that they are on. */
static void find_silent(dlc_hub *hub, uint64_t now) {
    int told = hub->told, first = -1;
    char summary[64];
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        char why[256];
        if (!peer->remote || !peer->joined || peer->control < 0 ||
            since(now, peer->heard) <= hub->deadline)
            continue;
        snprintf(why, sizeof why,
                 "nothing was heard from %s for %.1f s ([parallel] hang_timeout = %g): the "
                 "machine or the network to it is down, or the process is stopped",
                 peer->host, since(now, peer->heard), hub->deadline);
        dlc_hub_lose(hub, r, why);
        first = first < 0 ? r : first;
    }
    if (told || !hub->told || first < 0)
        return;
    snprintf(summary, sizeof summary, "when rank %d was lost:", first);
    list(hub, first, now, summary);
}

void dlc_hub_watch(dlc_hub *hub) {
    uint64_t now = dlc_now_ns();
    int culprit;
    /* Stopped meanwhile: what the ranks did in that time, nobody has seen. */
    if (now - hub->beat > 4 * (uint64_t)DLC_BEAT_NS)
        dlc_hub_watch_anew(hub);
    hub->beat = now;
    take_pulses(hub);
    if (!(hub->deadline > 0))
        return;
    find_silent(hub, now);
    if (stops_too_late(hub, now, &culprit)) {
        end_late_stop(hub, culprit, now);
        return;
    }
    if (!hub->told && !hub->gate)
        warn_of_slow(hub, now);
    if (!hub->told && !hub->gate && is_hung(hub, now, &culprit))
        report(hub, culprit, now);
}
