/* The hub's receiving side: frames from ranks and agents, in as many pieces as they
 * come. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/hub.h"
#include "job/signals.h"

/* How a child ended is learned from waitid(); for a remote rank, a closed connection is
 * all that will ever be known. */
static void channel_ended(dlc_hub *hub, int rank, const char *why) {
    dlc_peer *peer = &hub->peer[rank];
    if (peer->remote) {
        dlc_hub_lost_rank(hub, rank, why);
        return;
    }
    close(peer->control);
    peer->control = -1;
}

/* Receives up to `length` bytes of the frame; 0: none available. */
static size_t receive_some(dlc_hub *hub, int rank, void *to, size_t length) {
    ssize_t got = recv(hub->peer[rank].control, to, length, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (!got)
        channel_ended(hub, rank, "its connection was closed");
    else if (errno != EAGAIN && errno != EINTR)
        channel_ended(hub, rank, strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    return 0;
}

static void abort_unknown(dlc_hub *hub, int rank) {
    char text[160];
    int length = dlc_hub_name(hub, rank, text, sizeof text);
    snprintf(text + length, sizeof text - (size_t)length, " sent an unknown message");
    dlc_hub_abort(hub, DLC_ERR_INTERNAL, text);
}

static void begin_heartbeat(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    if (peer->remote && peer->frame.bytes == sizeof peer->incoming)
        peer->payload = (char *)&peer->incoming;
    else
        abort_unknown(hub, rank);
}

/* Begins to receive a rank's reason. */
static void begin_reason(dlc_hub *hub, int rank, char reason[DLC_FAILURE_TEXT]) {
    dlc_peer *peer = &hub->peer[rank];
    memset(reason, 0, DLC_FAILURE_TEXT);
    if (peer->frame.bytes < DLC_FAILURE_TEXT && peer->frame.number < 0)
        peer->payload = reason;
    else
        abort_unknown(hub, rank);
}

/* Tells all ranks: some may be waiting for this one inside a library. */
static void spread_withdrawal(dlc_hub *hub, int rank) {
    char text[DLC_FAILURE_TEXT];
    int length = dlc_hub_name(hub, rank, text, sizeof text);
    (void)snprintf(text + length, sizeof text - (size_t)length, ": %s",
                   hub->peer[rank].withdrawal);
    dlc_frame frame = hub->peer[rank].frame;
    frame.bytes = strlen(text);
    for (int r = 0; r < hub->ranks; r++)
        dlc_hub_send(hub, r, &frame, text);
}

static void frame_begin(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    const dlc_frame *frame = &peer->frame;
    peer->payload_got = 0;
    peer->payload = NULL;
    peer->in_call = 0;
    switch (frame->kind) {
    case DLC_FRAME_SIGNAL:
        if (frame->number == SIGINT || frame->number == SIGTERM ||
            dlc_signal_request(frame->number))
            dlc_hub_signal(hub, frame->number, &peer->stop_time);
        else
            abort_unknown(hub, rank);
        break;
    case DLC_FRAME_ALL_GATHER:
    case DLC_FRAME_BROADCAST:
        peer->in_call = !hub->aborting && dlc_hub_call_begin(hub, rank);
        break;
    case DLC_FRAME_HEARTBEAT:
        begin_heartbeat(hub, rank);
        break;
    case DLC_FRAME_FAILED:
        begin_reason(hub, rank, peer->failure);
        break;
    case DLC_FRAME_WITHDRAWN:
        begin_reason(hub, rank, peer->withdrawal);
        break;
    case DLC_FRAME_RETURNED:
        peer->returned = 1;
        break;
    case DLC_FRAME_ENDED:
        if (peer->remote && peer->running)
            dlc_hub_rank_ended(hub, rank, frame->size != 0, frame->number);
        break;
    default:
        abort_unknown(hub, rank);
    }
}

static void frame_end(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    if (peer->in_call) {
        dlc_hub_call_end(hub, rank);
    } else if (peer->payload && peer->frame.kind == DLC_FRAME_FAILED) {
        peer->failed = peer->frame.number;
    } else if (peer->payload && peer->frame.kind == DLC_FRAME_WITHDRAWN) {
        spread_withdrawal(hub, rank);
    } else if (peer->payload) {
        peer->pid = peer->incoming.pid;
        dlc_hub_heartbeat(hub, rank, &peer->incoming);
    }
}

/* Receives more of the payload, of which `left` bytes are missing; unwanted ones are
 * discarded. 0: none available. */
static size_t receive_payload(dlc_hub *hub, int rank, size_t left) {
    dlc_peer *peer = &hub->peer[rank];
    char discarded[4096];
    if (peer->in_call &&
        dlc_payload_reserve(&peer->part, peer->frame.bytes) != DLC_OK) {
        peer->in_call = 0;
        dlc_payload_free(&peer->part);
        dlc_hub_abort(hub, DLC_ERR_NOMEM, dlc_detail());
    }
    if (peer->in_call) {
        dlc_payload *part = &peer->part;
        size_t got = receive_some(hub, rank, part->bytes + part->got,
                                  part->room - part->got);
        part->got += got;
        return got;
    }
    if (peer->payload)
        return receive_some(hub, rank, peer->payload + peer->payload_got, left);
    return receive_some(hub, rank, discarded,
                        left < sizeof discarded ? left : sizeof discarded);
}

void dlc_hub_read(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    peer->last_heard = dlc_now_ns();
    while (peer->control >= 0) {
        if (peer->frame_got < sizeof peer->frame) {
            size_t got = receive_some(hub, rank, (char *)&peer->frame + peer->frame_got,
                                      sizeof peer->frame - peer->frame_got);
            peer->frame_got += got;
            if (!got)
                return;
            if (peer->frame_got < sizeof peer->frame)
                continue;
            frame_begin(hub, rank);
        }
        size_t left = peer->frame.bytes - peer->payload_got;
        if (left) {
            size_t got = receive_payload(hub, rank, left);
            peer->payload_got += got;
            if (!got)
                return;
        }
        if (peer->payload_got == peer->frame.bytes) {
            peer->frame_got = 0;
            frame_end(hub, rank);
        }
    }
}
