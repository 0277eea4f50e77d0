/* Reads until all bytes are there, or the file ends. */
#include "base/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

size_t dlc_read_text(const char *path, char *text, size_t room) {
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t length = dlc_read_at(fd, text, room - 1, 0);
    text[length] = '\0';
    close(fd);
    return length;
}

size_t dlc_read_line(const char *path, char *line, size_t room) {
    (void)dlc_read_text(path, line, room);
    size_t length = strcspn(line, "\n");
    line[length] = '\0';
    return length;
}

uint64_t dlc_read_kilobytes(const char *path, const char *name) {
    char text[1024];
    unsigned long kilobytes = 0;
    (void)dlc_read_text(path, text, sizeof text);
    const char *line = strstr(text, name);
    if (line)
        (void)sscanf(line + strlen(name), ": %lu kB", &kilobytes);
    return (uint64_t)kilobytes * 1024;
}
