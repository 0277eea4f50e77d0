/* The hub's receiving side: frames from ranks and agents, in as many pieces as they
 * come, and the out-of-band collectives that they call: every rank sends its call and
 * its contribution; when all have, all get the result.
 *
 * One result buffer is enough: a rank calls again only after it has received the whole
 * last result, so when all have called again, nobody needs the old one. An earlier call
 * is refused. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "job/hub/hub.h"

/* ---- Collectives ---------------------------------------------------------------- */

static int call_open(dlc_hub *hub, int rank, const dlc_frame *frame) {
    uint64_t parts = frame->kind == DLC_FRAME_ALL_GATHER ? (uint64_t)hub->ranks : 1;
    /* These collectives are for set-up: more than this is a mistake. */
    if (frame->size > DLC_FRAME_BYTES_MAX / parts) {
        char call[DLC_CALL_TEXT];
        dlc_hub_call_text(frame, call);
        dlc_hub_abort(hub, DLC_ERR_INTERNAL,
                      "rank %d called %s: too much for the control channel", rank,
                      call);
        return 0;
    }
    hub->call = (dlc_call){.open = 1, .first = rank, .frame = *frame};
    return 1;
}

int dlc_hub_call_begin(dlc_hub *hub, int rank) {
    const dlc_frame *frame = &hub->peer[rank].channel.frame;
    int gathers = frame->kind == DLC_FRAME_ALL_GATHER;
    int brings = gathers || frame->number == rank;
    int has_root = gathers || (frame->number >= 0 && frame->number < hub->ranks);
    if (!has_root || frame->bytes != (brings ? frame->size : 0) ||
        hub->peer[rank].called || hub->peer[rank].channel.shared) {
        dlc_hub_abort(hub, DLC_ERR_INTERNAL, "rank %d sent a malformed message", rank);
        return 0;
    }
    if (!hub->call.open)
        return call_open(hub, rank, frame);
    const dlc_frame *first = &hub->call.frame;
    if (frame->kind == first->kind && frame->number == first->number &&
        frame->size == first->size)
        return 1;
    char ours[DLC_CALL_TEXT], theirs[DLC_CALL_TEXT];
    dlc_hub_call_text(first, ours);
    dlc_hub_call_text(frame, theirs);
    dlc_hub_abort(hub, DLC_ERR_INTERNAL,
                  "the ranks called different collectives: rank %d %s, rank %d %s",
                  hub->call.first, ours, rank, theirs);
    return 0;
}

/* Concatenates the contributions of all ranks; a broadcast has only one. */
static dlc_status join_parts(dlc_hub *hub, char **result, size_t *bytes) {
    const dlc_frame *call = &hub->call.frame;
    int gathers = call->kind == DLC_FRAME_ALL_GATHER;
    size_t joined = 0;
    char *all;
    *bytes = gathers ? call->size * (size_t)hub->ranks : call->size;
    if (!gathers) { /* it may be large, and is not copied */
        dlc_payload *part = &hub->peer[call->number].part;
        *result = part->bytes;
        *part = (dlc_payload){0};
        return DLC_OK;
    }
    *result = all = dlc_alloc(*bytes, 1);
    if (!all)
        return DLC_ERR_NOMEM;
    for (int r = 0; r < hub->ranks; r++) {
        dlc_payload *part = &hub->peer[r].part;
        if (part->got)
            memcpy(all + joined, part->bytes, part->got);
        joined += part->got;
        dlc_payload_free(part);
    }
    return DLC_OK;
}

void dlc_hub_call_end(dlc_hub *hub, int rank) {
    hub->peer[rank].called = 1;
    if (++hub->call.count < hub->ranks) {
        dlc_hub_call_check(hub);
        return;
    }
    size_t bytes;
    dlc_free(hub->result);
    dlc_status status = join_parts(hub, &hub->result, &bytes);
    hub->call = (dlc_call){0};
    if (status != DLC_OK) {
        dlc_hub_abort(hub, status, "%s", dlc_detail());
        return;
    }
    const dlc_frame frame = {.kind = DLC_FRAME_RESULT, .bytes = bytes};
    uint64_t now = dlc_now_ns();
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        peer->called = 0;
        peer->last_progress = now; /* it was waiting, not hanging */
        dlc_channel_send_shared(&peer->channel, &frame, hub->result);
    }
}

/* ---- Frames --------------------------------------------------------------------- */

static int abort_unknown(dlc_hub *hub, int rank) {
    dlc_hub_abort(hub, DLC_ERR_INTERNAL, "%s sent an unknown message",
                  dlc_hub_describe(hub, rank).name);
    return 0;
}

static int take_signal(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    int signal = peer->channel.frame.number;
    if (signal != SIGINT && signal != SIGTERM && !dlc_signal_request(signal))
        return abort_unknown(hub, rank);
    dlc_hub_signal(hub, signal, &peer->stop_time);
    return 0;
}

/* Handles a header; returns whether the payload is wanted. */
static int begin_frame(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    const dlc_frame *frame = &peer->channel.frame;
    switch (frame->kind) {
    case DLC_FRAME_SIGNAL:
        return take_signal(hub, rank);
    case DLC_FRAME_ALL_GATHER:
    case DLC_FRAME_BROADCAST:
        return !hub->aborting && dlc_hub_call_begin(hub, rank);
    case DLC_FRAME_HEARTBEAT:
        return (peer->remote && frame->bytes == sizeof peer->heartbeat) ||
               abort_unknown(hub, rank);
    case DLC_FRAME_FAILED:
    case DLC_FRAME_WITHDRAWN:
        return (frame->bytes < DLC_FAILURE_TEXT && frame->number < 0) ||
               abort_unknown(hub, rank);
    case DLC_FRAME_RETURNED:
        peer->returned = 1;
        return 0;
    case DLC_FRAME_ENDED:
        if (peer->remote && peer->running)
            dlc_hub_rank_ended(hub, rank, frame->size != 0, frame->number);
        return 0;
    default:
        return abort_unknown(hub, rank);
    }
}

/* Tells all ranks: some may be waiting for this one inside a library. */
static void spread_withdrawal(dlc_hub *hub, int rank) {
    dlc_rank_words words = dlc_hub_describe(hub, rank);
    char text[sizeof words.name + 2 + DLC_FAILURE_TEXT];
    (void)snprintf(text, sizeof text, "%s: %s", words.name, hub->peer[rank].withdrawal);
    dlc_frame frame = hub->peer[rank].channel.frame;
    frame.bytes = strlen(text);
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_send(hub, r, &frame, text);
}

/* Handles a whole frame whose payload was wanted. */
static void end_frame(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    dlc_payload *payload = &peer->channel.payload;
    dlc_heartbeat heartbeat;
    switch (peer->channel.frame.kind) {
    case DLC_FRAME_HEARTBEAT:
        memcpy(&heartbeat, payload->bytes, sizeof heartbeat);
        peer->pid = heartbeat.pid;
        dlc_hub_heartbeat(hub, rank, &heartbeat);
        break;
    case DLC_FRAME_FAILED:
        (void)snprintf(peer->failure, sizeof peer->failure, "%s", payload->bytes);
        peer->failed = peer->channel.frame.number;
        break;
    case DLC_FRAME_WITHDRAWN:
        (void)snprintf(peer->withdrawal, sizeof peer->withdrawal, "%s", payload->bytes);
        spread_withdrawal(hub, rank);
        break;
    default: /* a collective */
        dlc_payload_free(&peer->part);
        peer->part = *payload;
        *payload = (dlc_payload){0};
        dlc_hub_call_end(hub, rank);
    }
}

/* How a child ended is learned from waitid(); for a remote rank, a closed connection is
 * all that will ever be known. */
static void channel_ended(dlc_hub *hub, int rank) {
    int error = hub->peer[rank].channel.error;
    if (hub->peer[rank].remote)
        dlc_hub_lost_rank(hub, rank,
                          error ? strerror(error) // NOLINT(concurrency-mt-unsafe)
                                : "its connection was closed");
    else if (error == ENOMEM)
        dlc_hub_abort(hub, DLC_ERR_NOMEM, "%s", dlc_detail());
}

void dlc_hub_read(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    peer->last_heard = dlc_now_ns();
    while (dlc_channel_read_header(&peer->channel)) {
        if (!peer->frame_begun)
            peer->frame_wanted = begin_frame(hub, rank);
        peer->frame_begun = 1;
        if (!dlc_channel_read_payload(&peer->channel, !peer->frame_wanted))
            break;
        peer->frame_begun = 0;
        if (peer->frame_wanted)
            end_frame(hub, rank);
    }
    if (peer->channel.fd < 0)
        channel_ended(hub, rank);
}
