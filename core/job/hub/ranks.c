/* What the hub does to its ranks: sends to them, aborts and kills them, and decides
 * what an ended rank means for the job. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/hub/hub.h"

/* How long to wait for agents to confirm that their ranks were killed. */
#define ABANDON_NS 1000000000u

/* How long to wait whether all ranks fail for the same reason as the first. */
#define SAME_FAILURE_NS 300000000u

/* The activity of a child is read from the memory shared with it. */
dlc_rank_words dlc_hub_describe(const dlc_hub *hub, int rank) {
    const dlc_peer *peer = &hub->peer[rank];
    dlc_rank_words words;
    snprintf(words.name, sizeof words.name, "rank %d (host %s, pid %d)", rank,
             peer->host, (int)peer->pid);
    dlc_activity_text(peer->activity ? &peer->activity->current
                                     : &peer->heartbeat.activity,
                      words.activity);
    return words;
}

/* ---- Sending -------------------------------------------------------------------- */

void dlc_hub_send(dlc_hub *hub, int rank, const dlc_frame *frame, const void *payload) {
    dlc_channel_send(&hub->peer[rank].channel, frame, payload);
}

/* A rank that cannot be sent to would wait until the watchdog finds it. Without its
 * channel it ends by itself. */
void dlc_hub_flush(dlc_hub *hub, int rank) {
    char why[256];
    if (dlc_channel_flush(&hub->peer[rank].channel) == DLC_OK)
        return;
    snprintf(why, sizeof why, "%s", dlc_detail());
    if (!hub->peer[rank].remote) {
        dlc_hub_abort(hub, DLC_ERR_IO, "%s %s", dlc_hub_describe(hub, rank).name, why);
        return;
    }
    char text[sizeof why + 8];
    snprintf(text, sizeof text, "it %s", why);
    dlc_hub_lost_rank(hub, rank, text);
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

void dlc_hub_abort(dlc_hub *hub, dlc_status status, const char *format, ...) {
    char text[8192]; /* enough for a list of all ranks */
    va_list arguments;
    if (hub->aborting)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (status == DLC_ERR_PEER)
        hub->lost = 1;
    else
        hub->failure = dlc_exit_code(status);
    dlc_hub_send_abort(hub, status, text);
    dlc_error("%s", text);
}

/* ---- Killing and stopping ------------------------------------------------------- */

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

void dlc_hub_kill_ranks(dlc_hub *hub) {
    hub->killed = 1;
    hub->kill_at = 0;
    hub->abandon_at = dlc_awake_ns() + ABANDON_NS;
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_kill_rank(hub, r, SIGKILL);
}

void dlc_hub_end_by_signal(dlc_hub *hub, int signal) {
    hub->stop_signal = signal;
    hub->lost = hub->failure = 0;
    dlc_hub_kill_ranks(hub);
}

/* Some programs send a signal to all processes of a job: only a second signal to the
 * same process is a second request. */
void dlc_hub_signal(dlc_hub *hub, int signal, uint64_t *stop_time) {
    if (dlc_signal_request(signal)) {
        send_request(hub, dlc_signal_request(signal));
        return;
    }
    dlc_stop stop = dlc_stop_count(stop_time);
    if (stop == DLC_STOP_FIRST && !hub->stop_signal) {
        hub->stop_signal = signal;
        hub->stopped_at = *stop_time;
        if (hub->acceptor) /* no rank has anything to save yet */
            dlc_hub_kill_ranks(hub);
        send_request(hub, DLC_JOB_STOP);
    } else if (stop == DLC_STOP_AGAIN && !hub->killed) {
        dlc_warn("second request to stop: killing the ranks");
        dlc_hub_end_by_signal(hub, signal);
    }
}

/* ---- The end of a rank ---------------------------------------------------------- */

/* Whether the cause concerns the whole job: all ranks failed alike, or it is bad input,
 * which every rank of a machine would reject. */
static int is_common(const dlc_hub *hub) {
    int same = 0;
    for (int r = 0; r < hub->ranks; r++)
        same += strcmp(hub->peer[r].failure, hub->cause->failure) == 0;
    return same == hub->ranks || (DLC_STATUS_CLASS(hub->cause->failed) == 4 &&
                                  strcmp(hub->cause->host, hub->peer[0].host) == 0);
}

void dlc_hub_log_cause(dlc_hub *hub) {
    hub->report_cause_at = 0;
    if (is_common(hub))
        dlc_error("%s", hub->cause->failure);
    else
        dlc_error("%s: %s", dlc_hub_describe(hub, (int)(hub->cause - hub->peer)).name,
                  hub->cause->failure);
}

/* Logs that a rank has ended with an exit code, as `text` says, unless it failed
 * because of another rank or for the same reason as the first. */
static void log_exit(dlc_hub *hub, const dlc_peer *peer, int first, const char *text) {
    int has_reason = peer->failed && peer->failed != DLC_ERR_PEER;
    if (first && has_reason) {
        hub->cause = peer;
        hub->report_cause_at = dlc_awake_ns() + SAME_FAILURE_NS;
    } else if (first ||
               (has_reason && !hub->killed &&
                (!hub->cause || strcmp(peer->failure, hub->cause->failure) != 0))) {
        dlc_error("%s", text);
    }
}

void dlc_hub_rank_ended(dlc_hub *hub, int rank, int by_signal, int number) {
    dlc_peer *peer = &hub->peer[rank];
    int by_hub = hub->killed || peer->killed_by_hub;
    int first = !hub->aborting && !hub->killed;
    int has_quit = !by_signal && !number && !peer->returned;
    int code = by_signal ? 0 : number + has_quit;
    char text[512 + DLC_FAILURE_TEXT] = "";
    dlc_rank_words words = dlc_hub_describe(hub, rank);
    peer->running = 0;
    if (by_signal) {
        snprintf(text, sizeof text, "%s was killed by signal %d (%s)%s", words.name,
                 number, strsignal(number), // NOLINT(concurrency-mt-unsafe)
                 words.activity);
        hub->lost |= !by_hub;
    } else if (code) {
        if (peer->failed)
            snprintf(text, sizeof text, "%s: %s", words.name, peer->failure);
        else
            snprintf(text, sizeof text, "%s ended with exit code %d%s%s", words.name,
                     number, words.activity,
                     has_quit ? " before its work was done: a plugin, or a library "
                                "that it uses, has called _exit()"
                              : "");
        if (first && code > hub->failure)
            hub->failure = code;
    }
    if (first && (by_signal || code))
        dlc_hub_send_abort(hub, DLC_ERR_PEER, text);
    dlc_output_finish(&peer->output); /* its last output, before the report on it */
    if (by_signal && !by_hub)
        dlc_error("%s", text);
    else if (code)
        log_exit(hub, peer, first, text);
    if (!by_signal && !code)
        dlc_hub_call_check(hub);
}

void dlc_hub_lost_rank(dlc_hub *hub, int rank, const char *why) {
    dlc_peer *peer = &hub->peer[rank];
    dlc_channel_close(&peer->channel);
    if (!peer->running)
        return;
    peer->running = 0;
    if (hub->killed || peer->killed_by_hub)
        return;
    dlc_rank_words words = dlc_hub_describe(hub, rank);
    if (!hub->aborting) {
        dlc_hub_abort(hub, DLC_ERR_PEER, "lost %s%s: %s", words.name, words.activity,
                      why);
        return;
    }
    hub->lost = 1;
    dlc_error("lost %s%s: %s", words.name, words.activity, why);
}

void dlc_hub_call_text(const dlc_frame *call, char text[DLC_CALL_TEXT]) {
    if (call->kind == DLC_FRAME_BROADCAST)
        snprintf(text, DLC_CALL_TEXT, "broadcast of %" PRIu64 " bytes from rank %d",
                 call->size, call->number);
    else if (call->size)
        snprintf(text, DLC_CALL_TEXT, "all-gather of %" PRIu64 " bytes", call->size);
    else
        snprintf(text, DLC_CALL_TEXT, "barrier");
}

void dlc_hub_call_check(dlc_hub *hub) {
    for (int r = 0; hub->call.open && r < hub->ranks; r++) {
        if (hub->peer[r].running || hub->peer[r].called)
            continue;
        char call[DLC_CALL_TEXT];
        dlc_hub_call_text(&hub->call.frame, call);
        dlc_hub_abort(hub, DLC_ERR_PEER,
                      "%s has ended, but rank %d is waiting for it (%s)",
                      dlc_hub_describe(hub, r).name, hub->call.first, call);
        return;
    }
}

int dlc_hub_exit_code(const dlc_hub *hub) {
    return hub->lost          ? dlc_exit_code(DLC_ERR_PEER)
           : hub->failure     ? hub->failure
           : hub->stop_signal ? 128 + hub->stop_signal
                              : 0;
}
