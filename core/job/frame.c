/* See frame.h. */
#include "job/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

static dlc_status send_all(int fd, const char *bytes, size_t length, int flags) {
    while (length) {
        ssize_t done = send(fd, bytes, length, MSG_NOSIGNAL | flags);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return dlc_fail(DLC_ERR_PEER, "the control channel broke: %s",
                            strerror(errno));
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
