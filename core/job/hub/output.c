/* Reads the ranks' pipes and writes whole lines, prefixed by the rank, to stderr. */
#include "job/hub/hub.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define PIECE PIPE_BUF    /* the most that is written atomically: pipe(7) */
#define LINE (PIECE - 64) /* leaves room for the prefix and the newline */

int dlc_output_can_read(const dlc_output *output) {
    return output->fd >= 0 && output->used < DLC_OUTPUT_ROOM;
}

void dlc_output_read(dlc_output *output) {
    while (dlc_output_can_read(output)) {
        ssize_t got = read(output->fd, output->buffer + output->used,
                           DLC_OUTPUT_ROOM - output->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            dlc_close(&output->fd);
            return;
        }
        output->used += (size_t)got;
    }
}

/* The length of the first line with its newline, or of a piece to print without one; 0
 * if the line is not complete yet. */
static size_t first_line(const dlc_output *output, size_t from) {
    size_t left = output->used - from;
    size_t looked = left < LINE ? left : LINE;
    const char *start = output->buffer + from;
    const char *end = looked ? memchr(start, '\n', looked) : NULL;
    if (end)
        return (size_t)(end - start) + 1;
    return left >= LINE || output->fd < 0 ? looked : 0;
}

int dlc_output_can_write(const dlc_output *output) {
    return first_line(output, 0) > 0;
}

static void write_to_stderr(const char *bytes, size_t length) {
    while (length) {
        ssize_t done = write(STDERR_FILENO, bytes, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN) {
            struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&writable, 1, -1);
            continue;
        }
        if (done < 0)
            return; /* stderr is gone, so there is nowhere to report it */
        bytes += done;
        length -= (size_t)done;
    }
}

void dlc_output_write(dlc_output *output) {
    char piece[PIECE];
    size_t length = 0, taken = 0;
    /* Erase a progress line of rank 0 on the terminal. */
    if (dlc_log_is_terminal())
        length = (size_t)snprintf(piece, sizeof piece, "\r\033[K");
    char prefix[32];
    size_t before = (size_t)snprintf(prefix, sizeof prefix, "[rank %d] ", output->rank);
    for (;;) {
        size_t line = first_line(output, taken);
        if (!line || length + before + line + 1 > sizeof piece)
            break;
        memcpy(piece + length, prefix, before);
        memcpy(piece + length + before, output->buffer + taken, line);
        length += before + line;
        taken += line;
        if (piece[length - 1] != '\n')
            piece[length++] = '\n';
    }
    if (!taken)
        return;
    output->used -= taken;
    memmove(output->buffer, output->buffer + taken, output->used);
    write_to_stderr(piece, length);
}

void dlc_output_finish(dlc_output *output) {
    for (dlc_output_read(output); dlc_output_can_write(output); dlc_output_read(output))
        dlc_output_write(output);
    dlc_close(&output->fd); /* only an unfinished line is left */
    while (dlc_output_can_write(output))
        dlc_output_write(output);
}
