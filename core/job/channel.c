/* See channel.h. */
#include "job/channel.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

void dlc_channel_close(dlc_channel *channel) {
    if (channel->fd >= 0)
        close(channel->fd);
    dlc_free(channel->payload);
    dlc_text_free(&channel->out);
    *channel = (dlc_channel){.fd = -1};
}

/* Up to `length` bytes; 0: none now, or the channel is closed. */
static size_t receive(dlc_channel *channel, void *to, size_t length) {
    ssize_t got = recv(channel->fd, to, length, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (!got || (errno != EAGAIN && errno != EINTR))
        dlc_channel_close(channel);
    return 0;
}

/* The header is in: room for the rest. */
static int begin_payload(dlc_channel *channel) {
    dlc_free(channel->payload);
    channel->payload_got = 0;
    channel->payload = NULL;
    if (channel->frame.bytes <= DLC_FRAME_BYTES_MAX)
        channel->payload = dlc_alloc(channel->frame.bytes + 1, 1);
    if (!channel->payload)
        dlc_channel_close(channel); /* malformed, or more than there is memory for */
    return channel->fd >= 0;
}

int dlc_channel_read(dlc_channel *channel) {
    while (channel->fd >= 0) {
        if (channel->frame_got < sizeof channel->frame) {
            size_t got = receive(channel, (char *)&channel->frame + channel->frame_got,
                                 sizeof channel->frame - channel->frame_got);
            if (!got)
                return 0;
            channel->frame_got += got;
            if (channel->frame_got == sizeof channel->frame && !begin_payload(channel))
                return 0;
            continue;
        }
        size_t left = channel->frame.bytes - channel->payload_got;
        if (!left) {
            channel->frame_got = 0;
            return 1;
        }
        size_t got = receive(channel, channel->payload + channel->payload_got, left);
        if (!got)
            return 0;
        channel->payload_got += got;
    }
    return 0;
}

void dlc_channel_put(dlc_channel *channel, const dlc_frame *frame,
                     const void *payload) {
    if (channel->fd < 0)
        return;
    dlc_text_append(&channel->out, (const char *)frame, sizeof *frame);
    if (frame->bytes)
        dlc_text_append(&channel->out, payload, frame->bytes);
}

void dlc_channel_flush(dlc_channel *channel) {
    while (dlc_channel_wants_out(channel)) {
        ssize_t done = send(channel->fd, channel->out.bytes + channel->out_sent,
                            channel->out.length - channel->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done <= 0)
            return; /* full, or broken: reading finds that out */
        channel->out_sent += (size_t)done;
    }
    channel->out.length = channel->out_sent = 0;
}

int dlc_channel_wants_out(const dlc_channel *channel) {
    return channel->fd >= 0 && channel->out_sent < channel->out.length;
}
