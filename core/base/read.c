/* Reads until all bytes are there. */
#include "base/read.h"

#include <errno.h>
#include <unistd.h>

size_t dlc_read_at(int fd, void *into, size_t bytes, off_t begin) {
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = pread(fd, (char *)into + got, bytes - got, begin + (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}
