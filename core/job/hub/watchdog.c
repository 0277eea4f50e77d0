/* The hub's watchdog: tells ranks that make progress from ranks that hang.
 *
 * A rank makes progress when its activity changes (dlc_job_activity), and is busy while
 * its process computes or waits for a disk. A rank that waits for another one calls
 * dlc_job_check over and over, or is in a collective of the hub; if its main thread
 * does, it waits even if it seems busy, as it does on a machine with too few cores, or
 * while threads of its own read data ahead. Therefore:
 *
 *   - a rank that for longer than the hang timeout has neither made progress nor been
 *     busy nor called dlc_job_check is stuck: it was stopped, or waits for something
 *     that will never happen;
 *   - if all ranks wait, and none has made progress for as long nor computed in the
 *     last moment, a message was lost;
 *   - a rank that is busy without progress (a huge layer, a test, a checkpoint on a
 *     slow disk) is named in a warning after the hang timeout, and has ten times the
 *     hang timeout as long as the others wait for it;
 *   - a job that was asked to stop is killed when a rank has made no progress for the
 *     hang timeout since, even if it is busy. A rank that waits for a disk is saving
 *     its work and is waited for. Ranks that all wait for each other, and have for
 *     several seconds, will never stop and are killed at once.
 *
 * A rank that waits is never the culprit.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/hub/hub.h"

/* A waiting rank calls dlc_job_check much more often than this; heartbeats arrive twice
 * a second. */
#define CHECKS_WITHIN_S 1.5

/* How long all ranks of a job that is to stop may wait for each other. The slowest
 * links bring a message in less. */
#define STALLED_S 10

/* ---- Heartbeats ---------------------------------------------------------------- */

void dlc_hub_heartbeat(dlc_hub *hub, int rank, const dlc_heartbeat *heartbeat) {
    dlc_peer *peer = &hub->peer[rank];
    uint64_t now = dlc_now_ns();
    if (heartbeat->steps != peer->heartbeat.steps)
        peer->last_progress = now;
    if (heartbeat->checks != peer->heartbeat.checks)
        peer->last_check = now;
    if (heartbeat->waits != peer->heartbeat.waits)
        peer->last_wait = now;
    if (heartbeat->busy)
        peer->last_busy = now;
    if (heartbeat->disk_wait)
        peer->last_disk_wait = now;
    peer->heartbeat = *heartbeat;
}

void dlc_hub_watchdog_reset(dlc_hub *hub) {
    uint64_t now = dlc_now_ns();
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        peer->last_progress = peer->last_busy = peer->last_check = peer->last_heard =
            now;
        peer->last_wait = peer->last_disk_wait = 0;
    }
    hub->last_heartbeat = hub->last_work = now;
}

static void exchange_heartbeats(dlc_hub *hub) {
    static const dlc_frame frame = {.kind = DLC_FRAME_HEARTBEAT};
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        if (peer->remote) {
            if (!dlc_channel_has_output(&peer->channel))
                dlc_hub_send(hub, r, &frame, NULL);
        } else if (peer->running && peer->pid) {
            dlc_heartbeat heartbeat = dlc_heartbeat_take(peer->pid, peer->activity,
                                                         &peer->last);
            dlc_hub_heartbeat(hub, r, &heartbeat);
        }
    }
}

/* ---- State of ranks ------------------------------------------------------------ */

typedef enum rank_state { PROGRESSES, WAITS, COMPUTES, STUCK } rank_state;

static int is_stopped(const dlc_peer *peer) {
    return peer->heartbeat.state == 'T' || peer->heartbeat.state == 't';
}

static int is_recent(const dlc_hub *hub, uint64_t then, uint64_t now) {
    double within = hub->hang_timeout > 0 ? 0.75 * hub->hang_timeout : CHECKS_WITHIN_S;
    return dlc_between(then, now) <
           (within < CHECKS_WITHIN_S ? within : CHECKS_WITHIN_S);
}

static int is_main_waiting(const dlc_hub *hub, const dlc_peer *peer, uint64_t now) {
    return !is_stopped(peer) && (peer->called || is_recent(hub, peer->last_wait, now));
}

static int is_waiting(const dlc_hub *hub, const dlc_peer *peer, uint64_t now) {
    return !is_stopped(peer) && (peer->called || is_recent(hub, peer->last_check, now));
}

static rank_state state_of_rank(const dlc_hub *hub, const dlc_peer *peer,
                                uint64_t now) {
    if (dlc_between(peer->last_progress, now) <= hub->hang_timeout)
        return PROGRESSES;
    if (is_main_waiting(hub, peer, now))
        return WAITS;
    /* One of its other threads may be waiting while the main thread computes. */
    if (dlc_between(peer->last_busy, now) <= hub->hang_timeout)
        return COMPUTES;
    if (is_waiting(hub, peer, now))
        return WAITS;
    return dlc_between(peer->last_check, now) <= hub->hang_timeout ? COMPUTES : STUCK;
}

/* Notes when a rank last computed. When it stops, its result is still on the way to the
 * others. */
static void note_work(dlc_hub *hub, uint64_t now) {
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        if (peer->running && !is_stopped(peer) && !is_main_waiting(hub, peer, now) &&
            is_recent(hub, peer->last_busy, now))
            hub->last_work = now;
    }
}

/* Whether the job hangs. `culprit` is the stuck rank, or -1 if all wait for each other.
 */
static int is_hung(const dlc_hub *hub, uint64_t now, int *culprit) {
    int progressing = 0, computing = 0, running = 0;
    double shortest = 1e30; /* seconds since any rank made progress */
    *culprit = -1;
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        if (!peer->running)
            continue;
        rank_state state = state_of_rank(hub, peer, now);
        running++;
        progressing += state == PROGRESSES;
        computing += state == COMPUTES;
        if (dlc_between(peer->last_progress, now) < shortest)
            shortest = dlc_between(peer->last_progress, now);
        if (state == STUCK && *culprit < 0)
            *culprit = r;
    }
    if (!running)
        return 0;
    if (*culprit >= 0)
        return 1;
    if (progressing)
        return 0;
    return computing ? shortest > DLC_COMPUTING_TIMEOUTS * hub->hang_timeout
                     : dlc_between(hub->last_work, now) > CHECKS_WITHIN_S;
}

/* ---- Reports ------------------------------------------------------------------- */

/* "  rank 0 (host x, pid 76) is waiting for rank 1, last progress 2.0 s ago during
 * backward conv2" */
static void describe_rank(const dlc_hub *hub, int rank, int culprit, uint64_t now,
                          dlc_text *text) {
    const dlc_peer *peer = &hub->peer[rank];
    dlc_rank_words words = dlc_hub_describe(hub, rank);
    char waiting[48] = "is waiting";
    rank_state state = state_of_rank(hub, peer, now);
    if (culprit >= 0)
        snprintf(waiting, sizeof waiting, "is waiting for rank %d", culprit);
    const char *doing = is_stopped(peer) ? "is stopped by a signal"
                        : is_recent(hub, peer->last_progress, now) ? "makes progress"
                        : is_waiting(hub, peer, now)               ? waiting
                        : state == STUCK                           ? "is stuck"
                                                                   : "is computing";
    dlc_text_add(text, "\n  %s %s, last progress %.1f s ago%s%s", words.name, doing,
                 dlc_between(peer->last_progress, now), words.activity,
                 peer->called ? ", in an out-of-band collective" : "");
}

/* "all wait for each other; rank 1 (host x, pid 77) was the first, during exchange of
 * bucket 3 (4096 bytes) over A with rank 2" */
static void describe_stall(const dlc_hub *hub, char *text, size_t room) {
    int first = -1;
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running &&
            (first < 0 || hub->peer[r].last_progress < hub->peer[first].last_progress))
            first = r;
    dlc_rank_words words = dlc_hub_describe(hub, first);
    snprintf(text, room, "all wait for each other; %s was the first%s%s", words.name,
             words.activity[0] ? "," : "", words.activity);
}

static void summarize_hang(const dlc_hub *hub, int culprit, uint64_t now, char *text,
                           size_t room) {
    char stall[512];
    if (culprit < 0) {
        describe_stall(hub, stall, sizeof stall);
        snprintf(text, room,
                 "no rank has made progress for more than %g s ([parallel] "
                 "hang_timeout): %s",
                 hub->hang_timeout, stall);
        return;
    }
    const dlc_peer *peer = &hub->peer[culprit];
    dlc_rank_words words = dlc_hub_describe(hub, culprit);
    snprintf(text, room,
             "%s hangs%s: no progress for %.1f s%s ([parallel] hang_timeout = %g)",
             words.name, is_stopped(peer) ? ", stopped by a signal" : "",
             dlc_between(peer->last_progress, now), words.activity, hub->hang_timeout);
}

/* Logs the summary and a line for each running rank. */
static void log_hang_report(const dlc_hub *hub, int culprit, uint64_t now,
                            const char *summary) {
    dlc_text text = {0};
    dlc_text_add(&text, "%s", summary);
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running)
            describe_rank(hub, r, culprit, now, &text);
    dlc_log_lines(DLC_LOG_ERROR, dlc_text_string(&text));
    dlc_text_free(&text);
}

static void report_hang(dlc_hub *hub, int culprit, uint64_t now) {
    char summary[768];
    summarize_hang(hub, culprit, now, summary, sizeof summary);
    hub->lost = 1;
    dlc_hub_send_abort(hub, DLC_ERR_PEER, summary);
    log_hang_report(hub, culprit, now, summary);
    /* Stuck ranks would not end when asked to. */
    for (int r = 0; r < hub->ranks; r++)
        if (hub->peer[r].running && state_of_rank(hub, &hub->peer[r], now) == STUCK)
            dlc_hub_kill_rank(hub, r, SIGKILL);
}

/* Warns about the rank that the others wait for because it computes; once per stall. */
static void warn_of_slow(dlc_hub *hub, uint64_t now) {
    dlc_peer *slow = NULL;
    uint64_t stalled = 0; /* when any rank last made progress */
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        rank_state state = peer->running ? state_of_rank(hub, peer, now) : WAITS;
        if (state == PROGRESSES)
            return;
        /* On busy CPUs a waiting rank may seem to compute, too. */
        if (state == COMPUTES &&
            (!slow || (is_waiting(hub, slow, now) && !is_waiting(hub, peer, now))))
            slow = peer;
        if (peer->last_progress > stalled)
            stalled = peer->last_progress;
    }
    if (!slow || hub->warned_stall == stalled || !slow->heartbeat.steps)
        return;
    hub->warned_stall = stalled;
    dlc_rank_words words = dlc_hub_describe(hub, (int)(slow - hub->peer));
    dlc_warn("%s has computed for %.0f s%s without progress; after %g s ([parallel] "
             "hang_timeout = %g, %d times) the job is ended",
             words.name, dlc_between(slow->last_progress, now), words.activity,
             DLC_COMPUTING_TIMEOUTS * hub->hang_timeout, hub->hang_timeout,
             DLC_COMPUTING_TIMEOUTS);
}

/* How long no rank has made progress because all of them wait for each other; 0: some
 * do not. A rank that is stopped by a signal will not go on either. */
static double stalled_for(const dlc_hub *hub, uint64_t now) {
    uint64_t last = hub->last_work;
    for (int r = 0; r < hub->ranks; r++) {
        const dlc_peer *peer = &hub->peer[r];
        if (!peer->running)
            continue;
        if (!is_stopped(peer) && !is_main_waiting(hub, peer, now))
            return 0;
        if (peer->last_progress > last)
            last = peer->last_progress;
    }
    return dlc_between(last, now);
}

/* Ends a job that was asked to stop and that hangs. Its ranks have had time to notice
 * the request. */
static int kill_stalled_stop(dlc_hub *hub, uint64_t now) {
    char stall[512];
    if (!hub->stop_signal || hub->killed || hub->aborting || hub->acceptor ||
        dlc_between(hub->stopped_at, now) < CHECKS_WITHIN_S ||
        stalled_for(hub, now) <= STALLED_S)
        return 0;
    describe_stall(hub, stall, sizeof stall);
    dlc_warn("asked to stop %.0f s ago, but no rank has made progress for %.0f s: %s: "
             "killing the ranks",
             dlc_between(hub->stopped_at, now), stalled_for(hub, now), stall);
    dlc_hub_end_by_signal(hub, hub->stop_signal);
    return 1;
}

/* Whether the job was asked to stop, and a rank has made no progress for the whole hang
 * timeout since. */
static int stops_too_late(const dlc_hub *hub, uint64_t now, int *rank) {
    if (!hub->stop_signal || hub->killed)
        return 0;
    for (*rank = 0; *rank < hub->ranks; ++*rank) {
        const dlc_peer *peer = &hub->peer[*rank];
        uint64_t last = peer->last_progress > peer->last_disk_wait
                            ? peer->last_progress
                            : peer->last_disk_wait;
        if (hub->stopped_at > last)
            last = hub->stopped_at;
        if (peer->running && state_of_rank(hub, peer, now) != WAITS &&
            dlc_between(last, now) > hub->hang_timeout)
            return 1;
    }
    return 0;
}

static void kill_late_stop(dlc_hub *hub, int rank, uint64_t now) {
    dlc_rank_words words = dlc_hub_describe(hub, rank);
    dlc_warn("asked to stop %.0f s ago, but %s makes no progress%s ([parallel] "
             "hang_timeout = %g): killing the ranks",
             dlc_between(hub->stopped_at, now), words.name, words.activity,
             hub->hang_timeout);
    dlc_hub_end_by_signal(hub, hub->stop_signal);
}

/* Reports agents that are silent: they are stopped, or their machine or network is
 * down. */
static void find_silent(dlc_hub *hub, uint64_t now) {
    int was_aborting = hub->aborting, first = -1;
    char summary[64];
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        char why[256];
        if (!peer->remote || !peer->joined || peer->channel.fd < 0 ||
            dlc_between(peer->last_heard, now) <= hub->hang_timeout)
            continue;
        snprintf(
            why, sizeof why,
            "nothing was heard from %s for %.1f s ([parallel] hang_timeout = %g): the "
            "machine or the network to it is down, or the process is stopped",
            peer->host, dlc_between(peer->last_heard, now), hub->hang_timeout);
        dlc_hub_lost_rank(hub, r, why);
        first = first < 0 ? r : first;
    }
    if (was_aborting || !hub->aborting || first < 0)
        return;
    snprintf(summary, sizeof summary, "when rank %d was lost:", first);
    log_hang_report(hub, first, now, summary);
}

void dlc_hub_watchdog_check(dlc_hub *hub) {
    uint64_t now = dlc_now_ns();
    int culprit;
    /* This process was stopped in between, and has not seen what the ranks did. */
    if (now - hub->last_heartbeat > 4 * (uint64_t)DLC_HEARTBEAT_NS)
        dlc_hub_watchdog_reset(hub);
    hub->last_heartbeat = now;
    exchange_heartbeats(hub);
    note_work(hub, now);
    if (kill_stalled_stop(hub, now) || !(hub->hang_timeout > 0))
        return;
    find_silent(hub, now);
    if (stops_too_late(hub, now, &culprit)) {
        kill_late_stop(hub, culprit, now);
        return;
    }
    if (!hub->aborting && !hub->acceptor)
        warn_of_slow(hub, now);
    if (!hub->aborting && !hub->acceptor && is_hung(hub, now, &culprit))
        report_hang(hub, culprit, now);
}
