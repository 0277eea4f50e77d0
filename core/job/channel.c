/* Non-blocking reads and writes of whole frames, with a queue for what the socket does
 * not take yet. */
#include "job/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void dlc_channel_close(dlc_channel *channel) {
    if (channel->fd >= 0)
        close(channel->fd);
    dlc_payload_free(&channel->payload);
    dlc_text_free(&channel->out);
    *channel = (dlc_channel){.fd = -1};
}

/* Receives up to `length` bytes; 0: none available, or the channel was closed. */
static size_t receive(dlc_channel *channel, void *to, size_t length) {
    ssize_t got = recv(channel->fd, to, length, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (!got || (errno != EAGAIN && errno != EINTR))
        dlc_channel_close(channel);
    return 0;
}

/* Makes room for the rest of the payload or its next part; 0: the channel was closed.
 */
static int reserve(dlc_channel *channel) {
    if (dlc_payload_reserve(&channel->payload, channel->frame.bytes) != DLC_OK)
        dlc_channel_close(channel); /* malformed, or more than there is memory for */
    return channel->fd >= 0;
}

/* 1: the header is complete. */
static int read_header(dlc_channel *channel) {
    while (channel->frame_got < sizeof channel->frame) {
        size_t got = receive(channel, (char *)&channel->frame + channel->frame_got,
                             sizeof channel->frame - channel->frame_got);
        if (!got)
            return 0;
        channel->frame_got += got;
        dlc_payload_free(&channel->payload);
    }
    return 1;
}

int dlc_channel_read(dlc_channel *channel) {
    dlc_payload *payload = &channel->payload;
    while (channel->fd >= 0 && read_header(channel) && reserve(channel)) {
        if (payload->got == channel->frame.bytes) {
            channel->frame_got = 0;
            return 1;
        }
        size_t got = receive(channel, payload->bytes + payload->got,
                             payload->room - payload->got);
        if (!got)
            return 0;
        payload->got += got;
    }
    return 0;
}

void dlc_channel_send(dlc_channel *channel, const dlc_frame *frame,
                      const void *payload) {
    if (channel->fd < 0)
        return;
    dlc_text_append(&channel->out, (const char *)frame, sizeof *frame);
    if (frame->bytes)
        dlc_text_append(&channel->out, payload, frame->bytes);
}

dlc_status dlc_channel_flush(dlc_channel *channel) {
    while (dlc_channel_has_output(channel)) {
        ssize_t done = send(channel->fd, channel->out.bytes + channel->out_sent,
                            channel->out.length - channel->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && !dlc_send_is_full(errno) && !dlc_send_is_closed(errno)) {
            dlc_status status = dlc_fail(DLC_ERR_IO, "cannot be sent to: %s",
                                         strerror(errno));
            dlc_channel_close(channel);
            return status;
        }
        if (done <= 0)
            return DLC_OK; /* full, or closed: reading detects that */
        channel->out_sent += (size_t)done;
    }
    channel->out.length = channel->out_sent = 0;
    return DLC_OK;
}

int dlc_channel_has_output(const dlc_channel *channel) {
    return channel->fd >= 0 && channel->out_sent < channel->out.length;
}
