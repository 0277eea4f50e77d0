/* Sends and reads frames, blocking or not, and keeps what a socket does not take yet.
 */
#include "job/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/memory.h"

/* The room for the first bytes of a payload. */
#define FIRST_ROOM ((size_t)64 << 10)

/* ---- Payloads ------------------------------------------------------------------- */

dlc_status dlc_payload_reserve(dlc_payload *payload, uint64_t total) {
    size_t room = payload->got < FIRST_ROOM / 2 ? FIRST_ROOM : 2 * payload->got;
    if (total > DLC_FRAME_BYTES_MAX)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "a message of %" PRIu64 " bytes is malformed: none has more "
                        "than %" PRIu64,
                        total, DLC_FRAME_BYTES_MAX);
    if (room > total)
        room = total;
    if (payload->bytes && (payload->got < payload->room || payload->room == total))
        return DLC_OK;
    char *grown = dlc_grow(payload->bytes, payload->got, room + 1, 1);
    if (!grown)
        return DLC_ERR_NOMEM;
    payload->bytes = grown;
    payload->room = room;
    return DLC_OK;
}

void dlc_payload_free(dlc_payload *payload) {
    dlc_free(payload->bytes);
    *payload = (dlc_payload){0};
}

/* ---- Blocking ------------------------------------------------------------------- */

/* Whether a send has failed because the other end is gone, which a read reports too. */
static int send_found_closed(int error) {
    return error == EPIPE || error == ECONNRESET;
}

static dlc_status send_blocking(int fd, const char *bytes, size_t length, int flags) {
    while (length) {
        ssize_t done = send(fd, bytes, length, MSG_NOSIGNAL | flags);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return dlc_fail(send_found_closed(errno) ? DLC_ERR_PEER : DLC_ERR_IO,
                            "cannot send on the control channel: %s", strerror(errno));
        }
        bytes += done;
        length -= (size_t)done;
    }
    return DLC_OK;
}

dlc_status dlc_frame_send(int fd, const dlc_frame *frame, const void *payload) {
    DLC_TRY(send_blocking(fd, (const char *)frame, sizeof *frame,
                          frame->bytes ? MSG_MORE : 0));
    return send_blocking(fd, payload, frame->bytes, 0);
}

dlc_status dlc_frame_read(int fd, void *buffer, size_t bytes) {
    char *at = buffer;
    while (bytes) {
        ssize_t done = recv(fd, at, bytes, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return dlc_fail(DLC_ERR_PEER, "the control channel broke: %s",
                            done ? strerror(errno) : "closed");
        at += done;
        bytes -= (size_t)done;
    }
    return DLC_OK;
}

dlc_status dlc_frame_read_payload(int fd, uint64_t bytes, dlc_payload *payload) {
    do {
        DLC_TRY(dlc_payload_reserve(payload, bytes));
        DLC_TRY(dlc_frame_read(fd, payload->bytes + payload->got,
                               payload->room - payload->got));
        payload->got = payload->room;
    } while (payload->got < bytes);
    return DLC_OK;
}

/* ---- Reading without blocking --------------------------------------------------- */

static void close_because(dlc_channel *channel, int error) {
    if (channel->fd >= 0)
        close(channel->fd);
    dlc_payload_free(&channel->payload);
    dlc_text_free(&channel->out);
    *channel = (dlc_channel){.fd = -1, .error = error};
}

void dlc_channel_close(dlc_channel *channel) {
    close_because(channel, 0);
}

/* Receives up to `length` bytes; 0: none available, or the channel was closed. */
static size_t receive_some(dlc_channel *channel, void *to, size_t length) {
    ssize_t got = recv(channel->fd, to, length, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (!got || (errno != EAGAIN && errno != EINTR))
        close_because(channel, got ? errno : 0);
    return 0;
}

int dlc_channel_read_header(dlc_channel *channel) {
    while (channel->fd >= 0 && channel->frame_got < sizeof channel->frame) {
        size_t got = receive_some(channel, (char *)&channel->frame + channel->frame_got,
                                  sizeof channel->frame - channel->frame_got);
        if (!got)
            return 0;
        channel->frame_got += got;
        dlc_payload_free(&channel->payload);
    }
    return channel->fd >= 0;
}

/* Receives more of the payload; 0: none available, or the channel was closed. */
static size_t receive_payload(dlc_channel *channel, int discard) {
    dlc_payload *payload = &channel->payload;
    char discarded[4096];
    uint64_t left = channel->frame.bytes - payload->got;
    if (discard)
        return receive_some(channel, discarded,
                            left < sizeof discarded ? left : sizeof discarded);
    return receive_some(channel, payload->bytes + payload->got,
                        payload->room - payload->got);
}

int dlc_channel_read_payload(dlc_channel *channel, int discard) {
    dlc_payload *payload = &channel->payload;
    while (channel->fd >= 0) {
        dlc_status status = discard
                                ? DLC_OK
                                : dlc_payload_reserve(payload, channel->frame.bytes);
        if (status != DLC_OK) {
            close_because(channel, status == DLC_ERR_NOMEM ? ENOMEM : EBADMSG);
            return 0;
        }
        if (payload->got == channel->frame.bytes) {
            channel->frame_got = 0;
            return 1;
        }
        size_t got = receive_payload(channel, discard);
        if (!got)
            return 0;
        payload->got += got;
    }
    return 0;
}

int dlc_channel_read(dlc_channel *channel) {
    return dlc_channel_read_header(channel) && dlc_channel_read_payload(channel, 0);
}

/* ---- Sending without blocking --------------------------------------------------- */

void dlc_channel_send(dlc_channel *channel, const dlc_frame *frame,
                      const void *payload) {
    if (channel->fd < 0)
        return;
    dlc_text_append(&channel->out, (const char *)frame, sizeof *frame);
    if (payload)
        dlc_text_append(&channel->out, payload, frame->bytes);
}

void dlc_channel_send_shared(dlc_channel *channel, const dlc_frame *frame,
                             const void *payload) {
    dlc_channel_send(channel, frame, NULL);
    if (channel->fd < 0 || !frame->bytes)
        return;
    channel->shared = payload;
    channel->shared_bytes = frame->bytes;
    channel->shared_at = channel->out.length;
    channel->shared_sent = 0;
}

int dlc_channel_has_output(const dlc_channel *channel) {
    return channel->fd >= 0 &&
           (channel->out_sent < channel->out.length || channel->shared);
}

/* Sends the next bytes that are queued; how many, or -1 with errno. */
static ssize_t send_some(dlc_channel *channel) {
    size_t until = channel->shared ? channel->shared_at : channel->out.length;
    int is_shared = channel->out_sent == until;
    size_t *sent = is_shared ? &channel->shared_sent : &channel->out_sent;
    ssize_t done = send(channel->fd,
                        (is_shared ? channel->shared : channel->out.bytes) + *sent,
                        (is_shared ? channel->shared_bytes : until) - *sent,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    *sent += done > 0 ? (size_t)done : 0;
    if (channel->shared && channel->shared_sent == channel->shared_bytes)
        channel->shared = NULL;
    return done;
}

dlc_status dlc_channel_flush(dlc_channel *channel) {
    while (dlc_channel_has_output(channel)) {
        if (send_some(channel) > 0)
            continue;
        int error = errno;
        if (error == EAGAIN || error == EINTR || send_found_closed(error))
            return DLC_OK; /* full, or closed: reading detects that */
        close_because(channel, error);
        return dlc_fail(DLC_ERR_IO, "cannot be sent to: %s", strerror(error));
    }
    channel->out.length = channel->out_sent = 0;
    return DLC_OK;
}
