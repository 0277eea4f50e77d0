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

int dlc_read_lines_open(const char *path, dlc_read_lines *lines) {
    lines->fd = open(path, O_RDONLY | O_CLOEXEC);
    lines->at = lines->end = 0;
    return lines->fd >= 0;
}

/* Moves the beginning of a line to the front and reads on. 0: nothing more came. */
static int read_more(dlc_read_lines *lines) {
    ssize_t n;
    lines->end -= lines->at;
    memmove(lines->bytes, lines->bytes + lines->at, lines->end);
    lines->at = 0;
    if (lines->end == DLC_READ_LINE)
        return 0;
    do
        n = read(lines->fd, lines->bytes + lines->end, DLC_READ_LINE - lines->end);
    while (n < 0 && errno == EINTR);
    lines->end += n > 0 ? (size_t)n : 0;
    return n > 0;
}

char *dlc_read_lines_next(dlc_read_lines *lines) {
    size_t seen = 0;
    for (;;) {
        char *line = lines->bytes + lines->at;
        size_t left = lines->end - lines->at;
        char *end = memchr(line + seen, '\n', left - seen);
        if (end) {
            *end = '\0';
            lines->at += (size_t)(end - line) + 1;
            return line;
        }
        seen = left;
        if (read_more(lines))
            continue;
        if (!left)
            return NULL;
        lines->bytes[lines->end] = '\0'; /* the last line, or a piece of a long one */
        lines->at = lines->end;
        return lines->bytes;
    }
}

void dlc_read_lines_close(dlc_read_lines *lines) {
    close(lines->fd);
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
