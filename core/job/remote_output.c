/* Passes on what a host prints, and finds the line that `dlcore node` begins with. */
#include "job/remote_output.h"

#include <errno.h>
#include <unistd.h>

#include "base/write.h"

enum { STARTED = sizeof DLC_REMOTE_STARTED - 1 };

int dlc_remote_output_has_started(const dlc_remote_output *output) {
    return output->matched == STARTED;
}

void dlc_remote_output_close(dlc_remote_output *output) {
    if (output->fd >= 0)
        close(output->fd);
    output->fd = -1;
}

/* Takes one byte; returns how many bytes of `to` are to be passed on because of it. */
static size_t search(dlc_remote_output *output, char byte, char *to) {
    static const char line[] = DLC_REMOTE_STARTED;
    size_t count = 0;
    if (!dlc_remote_output_has_started(output)) {
        if (byte == line[output->matched]) {
            output->matched++;
            return 0;
        }
        for (; count < output->matched; count++)
            to[count] = line[count];
        output->matched = byte == line[0];
        if (output->matched)
            return count;
    }
    to[count++] = byte;
    return count;
}

int dlc_remote_output_pass_on(dlc_remote_output *output) {
    char got[2048], passed[sizeof got + STARTED];
    ssize_t length = output->fd < 0 ? 0 : read(output->fd, got, sizeof got);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length <= 0) {
        dlc_remote_output_close(output);
        return 0;
    }
    size_t count = 0;
    for (ssize_t i = 0; i < length; i++)
        count += search(output, got[i], passed + count);
    (void)dlc_write_all(STDOUT_FILENO, passed, count);
    return 1;
}
