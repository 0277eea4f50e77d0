/* Blocking sends and reads of frames, and the growing buffer for a payload. */
#include "job/frame.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/memory.h"

/* The room for the first bytes of a payload. */
#define FIRST_ROOM ((size_t)64 << 10)

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

int dlc_send_is_closed(int error) {
    return error == EPIPE || error == ECONNRESET;
}

int dlc_send_is_full(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static dlc_status send_all(int fd, const char *bytes, size_t length, int flags) {
    while (length) {
        ssize_t done = send(fd, bytes, length, MSG_NOSIGNAL | flags);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return dlc_fail(dlc_send_is_closed(errno) ? DLC_ERR_PEER : DLC_ERR_IO,
                            "cannot send on the control channel: %s", strerror(errno));
        }
        bytes += done;
        length -= (size_t)done;
    }
    return DLC_OK;
}

dlc_status dlc_frame_send(int fd, const dlc_frame *frame, const void *payload) {
    DLC_TRY(
        send_all(fd, (const char *)frame, sizeof *frame, frame->bytes ? MSG_MORE : 0));
    return send_all(fd, payload, frame->bytes, 0);
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
