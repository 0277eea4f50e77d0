/* Writes until all bytes are written. */
#include "base/write.h"

#include <errno.h>
#include <unistd.h>

size_t dlc_write_all(int fd, const void *from, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, (const char *)from + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}
