/* Collectives, the hub's side: every rank sends what it calls and its part; when
 * all have come, all get the result.
 *
 * One result is enough: a rank calls again only when it has the last result whole,
 * so when all have called again, nobody reads the old one any more. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "job/hub.h"

/* "allgather of 8 bytes", "barrier", "broadcast of 4 bytes from rank 1" */
static void call_text(const dlc_frame *frame, char *text, size_t room) {
    if (frame->kind == DLC_FRAME_BROADCAST)
        snprintf(text, room, "broadcast of %" PRIu64 " bytes from rank %d", frame->size,
                 frame->number);
    else if (frame->size)
        snprintf(text, room, "allgather of %" PRIu64 " bytes", frame->size);
    else
        snprintf(text, room, "barrier");
}

static int call_open(dlc_hub *hub, int rank, const dlc_frame *frame) {
    uint64_t parts = frame->kind == DLC_FRAME_ALLGATHER ? (uint64_t)hub->ranks : 1;
    char text[160], what[96];
    call_text(frame, what, sizeof what);
    /* A collective is for set-up: more than this is a mistake. */
    if (frame->size > DLC_FRAME_BYTES_MAX / parts) {
        snprintf(text, sizeof text,
                 "rank %d called %s: too much for the control channel", rank, what);
        dlc_hub_tell(hub, DLC_ERR_INTERNAL, text);
        return 0;
    }
    hub->call = (dlc_call){
        .open = 1, .first = rank, .frame = *frame, .bytes = frame->size * parts};
    hub->call.buffer = dlc_alloc(hub->call.bytes, 1);
    if (!hub->call.buffer) {
        dlc_hub_tell(hub, DLC_ERR_NOMEM, dlc_detail());
        return 0;
    }
    return 1;
}

int dlc_hub_call_begin(dlc_hub *hub, int rank) {
    const dlc_frame *frame = &hub->peer[rank].frame;
    int brings = frame->kind == DLC_FRAME_ALLGATHER || frame->number == rank;
    char text[320], ours[96], theirs[96];
    if (frame->bytes != (brings ? frame->size : 0) || hub->peer[rank].called) {
        snprintf(text, sizeof text, "rank %d sent a malformed message", rank);
        dlc_hub_tell(hub, DLC_ERR_INTERNAL, text);
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
    dlc_hub_tell(hub, DLC_ERR_INTERNAL, text);
    return 0;
}

char *dlc_hub_call_buffer(dlc_hub *hub, int rank) {
    size_t part = hub->call.frame.kind == DLC_FRAME_ALLGATHER ? (size_t)rank : 0;
    return hub->call.buffer + part * hub->call.frame.size;
}

void dlc_hub_call_end(dlc_hub *hub, int rank) {
    hub->peer[rank].called = 1;
    if (++hub->call.count < hub->ranks) {
        dlc_hub_call_check(hub);
        return;
    }
    dlc_free(hub->result);
    hub->result = hub->call.buffer;
    hub->result_bytes = hub->call.bytes;
    hub->call = (dlc_call){0};
    dlc_frame frame = {.kind = DLC_FRAME_RESULT, .bytes = hub->result_bytes};
    uint64_t now = dlc_now_ns();
    for (int r = 0; r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        peer->called = 0;
        peer->moved = now; /* it was not its own fault that it stood still */
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
        snprintf(text, sizeof text, "%s has ended, but rank %d waits for it in a %s",
                 name, hub->call.first, what);
        dlc_hub_tell(hub, DLC_ERR_PEER, text);
        return;
    }
}
