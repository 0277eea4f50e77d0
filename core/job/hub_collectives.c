/* The hub's side of the out-of-band collectives: every rank sends its call and its
 * contribution; when all have, all get the result.
 *
 * One result buffer is enough: a rank calls again only after it has received the whole
 * last result, so when all have called again, nobody needs the old one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "job/hub.h"

/* "all-gather of 8 bytes", "barrier", "broadcast of 4 bytes from rank 1" */
static void call_text(const dlc_frame *frame, char *text, size_t room) {
    if (frame->kind == DLC_FRAME_BROADCAST)
        snprintf(text, room, "broadcast of %" PRIu64 " bytes from rank %d", frame->size,
                 frame->number);
    else if (frame->size)
        snprintf(text, room, "all-gather of %" PRIu64 " bytes", frame->size);
    else
        snprintf(text, room, "barrier");
}

static int call_open(dlc_hub *hub, int rank, const dlc_frame *frame) {
    uint64_t parts = frame->kind == DLC_FRAME_ALL_GATHER ? (uint64_t)hub->ranks : 1;
    char text[160], what[96];
    call_text(frame, what, sizeof what);
    /* These collectives are for set-up: more than this is a mistake. */
    if (frame->size > DLC_FRAME_BYTES_MAX / parts) {
        snprintf(text, sizeof text,
                 "rank %d called %s: too much for the control channel", rank, what);
        dlc_hub_abort(hub, DLC_ERR_INTERNAL, text);
        return 0;
    }
    hub->call = (dlc_call){.open = 1, .first = rank, .frame = *frame};
    return 1;
}

int dlc_hub_call_begin(dlc_hub *hub, int rank) {
    const dlc_frame *frame = &hub->peer[rank].frame;
    int gathers = frame->kind == DLC_FRAME_ALL_GATHER;
    int brings = gathers || frame->number == rank;
    int has_root = gathers || (frame->number >= 0 && frame->number < hub->ranks);
    char text[320], ours[96], theirs[96];
    if (!has_root || frame->bytes != (brings ? frame->size : 0) ||
        hub->peer[rank].called) {
        snprintf(text, sizeof text, "rank %d sent a malformed message", rank);
        dlc_hub_abort(hub, DLC_ERR_INTERNAL, text);
        return 0;
    }
    if (!hub->call.open)
        return call_open(hub, rank, frame);
    const dlc_frame *first = &hub->call.frame;
    if (frame->kind == first->kind && frame->number == first->number &&
        frame->size == first->size)
        return 1;
    call_text(first, ours, sizeof ours);
    call_text(frame, theirs, sizeof theirs);
    snprintf(text, sizeof text,
             "the ranks called different collectives: rank %d %s, rank %d %s",
             hub->call.first, ours, rank, theirs);
    dlc_hub_abort(hub, DLC_ERR_INTERNAL, text);
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
    dlc_free(hub->result);
    dlc_status status = join_parts(hub, &hub->result, &hub->result_bytes);
    hub->call = (dlc_call){0};
    if (status != DLC_OK) {
        dlc_hub_abort(hub, status, dlc_detail());
        return;
    }
    dlc_frame frame = {.kind = DLC_FRAME_RESULT, .bytes = hub->result_bytes};
    uint64_t now = dlc_now_ns();
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        peer->called = 0;
        peer->last_progress = now; /* it was waiting, not hanging */
        dlc_hub_send(hub, r, &frame, NULL);
        peer->has_result = hub->result_bytes > 0;
        peer->result_at = peer->out.length;
        peer->result_sent = 0;
    }
}

void dlc_hub_call_check(dlc_hub *hub) {
    if (!hub->call.open)
        return;
    for (int r = 0; r < hub->ranks; r++) {
        if (hub->peer[r].running || hub->peer[r].called)
            continue;
        char text[320], name[128], what[96];
        call_text(&hub->call.frame, what, sizeof what);
        dlc_hub_name(hub, r, name, sizeof name);
        snprintf(text, sizeof text, "%s has ended, but rank %d is waiting for it (%s)",
                 name, hub->call.first, what);
        dlc_hub_abort(hub, DLC_ERR_PEER, text);
        return;
    }
}
