/* What comes from the ranks and their agents: see hub.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/hub.h"

/* How a child of the hub ended, its exit will tell; of a remote rank this is all that
 * anybody will ever know. */
static void channel_ended(dlc_hub *hub, int rank, const char *why) {
    dlc_peer *peer = &hub->peer[rank];
    if (peer->remote) {
        dlc_hub_lose(hub, rank, why);
        return;
    }
    close(peer->control);
    peer->control = -1;
}

/* One step of the incoming frame: up to `length` bytes to `to`. 0: no more now. */
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

static void refuse(dlc_hub *hub, int rank) {
    char text[160];
    int length = dlc_hub_name(hub, rank, text, sizeof text);
    snprintf(text + length, sizeof text - (size_t)length, " sent an unknown message");
    dlc_hub_tell(hub, DLC_ERR_INTERNAL, text);
}

static void begin_pulse(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    if (peer->remote && peer->frame.bytes == sizeof peer->coming)
        peer->payload = (char *)&peer->coming;
    else
        refuse(hub, rank);
}

static void frame_begin(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    const dlc_frame *frame = &peer->frame;
    peer->payload_got = 0;
    peer->payload = NULL;
    switch (frame->kind) {
    case DLC_FRAME_SIGNAL:
        if (frame->number == SIGINT || frame->number == SIGTERM ||
            dlc_signal_request(frame->number))
            dlc_hub_signal(hub, frame->number, &peer->stop_time);
        else
            refuse(hub, rank);
        break;
    case DLC_FRAME_ALLGATHER:
    case DLC_FRAME_BROADCAST:
        if (!hub->told && dlc_hub_call_begin(hub, rank))
            peer->payload = dlc_hub_call_buffer(hub, rank);
        break;
    case DLC_FRAME_PULSE:
        begin_pulse(hub, rank);
        break;
    case DLC_FRAME_ENDED:
        if (peer->remote && peer->running)
            dlc_hub_ended(hub, rank, frame->size != 0, frame->number);
        break;
    default:
        refuse(hub, rank);
    }
}

static void frame_end(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    if (!peer->payload)
        return;
    if (peer->frame.kind == DLC_FRAME_PULSE) {
        peer->pid = peer->coming.pid;
        dlc_hub_pulse(hub, rank, &peer->coming);
    } else {
        dlc_hub_call_end(hub, rank);
    }
}

void dlc_hub_read(dlc_hub *hub, int rank) {
    dlc_peer *peer = &hub->peer[rank];
    char nowhere[4096];
    peer->heard = dlc_now_ns();
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
            char *to = nowhere;
            if (peer->payload)
                to = peer->payload + peer->payload_got;
            else if (left > sizeof nowhere)
                left = sizeof nowhere;
            size_t got = receive_some(hub, rank, to, left);
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
