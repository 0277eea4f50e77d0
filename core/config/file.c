/* Reads a net.ini whole and checks that it is UTF-8 text. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/read.h"
#include "base/status.h"
#include "config/internal.h"

/* Opens a regular file; anything else is refused unread (O_NONBLOCK: a FIFO without
 * writer would block in open itself). */
static dlc_status open_regular(const char *path, int *fd, size_t *size) {
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0)
        return dlc_fail(DLC_ERR_CONFIG, "%s: %s", path, strerror(errno));
    struct stat stat;
    dlc_status rc = DLC_OK;
    if (fstat(opened, &stat) != 0)
        rc = dlc_fail(DLC_ERR_CONFIG, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(stat.st_mode))
        rc = dlc_fail(DLC_ERR_CONFIG, "%s: a folder, not a file", path);
    else if (!S_ISREG(stat.st_mode))
        rc = dlc_fail(DLC_ERR_CONFIG, "%s: not a regular file", path);
    else if (stat.st_size > (off_t)DLC_CONFIG_BYTES)
        rc = dlc_fail(DLC_ERR_CONFIG,
                      "%s: %lld bytes are too large for a network description (at most "
                      "%u)",
                      path, (long long)stat.st_size, DLC_CONFIG_BYTES);
    if (rc != DLC_OK) {
        close(opened);
        return rc;
    }
    *fd = opened;
    *size = (size_t)stat.st_size;
    return DLC_OK;
}

/* Bytes of the sequence that starts with `lead`, 0 if none does. */
static size_t sequence_length(unsigned char lead) {
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

size_t dlc_utf8_check(const char *bytes, size_t length) {
    const unsigned char *b = (const unsigned char *)bytes;
    size_t i = 0;
    while (i < length) {
        size_t n = sequence_length(b[i]);
        if (n == 0 || n > length - i)
            return i;
        for (size_t k = 1; k < n; k++)
            if ((b[i + k] & 0xc0) != 0x80)
                return i;
        /* Too long a form, half a surrogate pair, or beyond U+10FFFF. */
        if ((b[i] == 0xe0 && b[i + 1] < 0xa0) || (b[i] == 0xed && b[i + 1] > 0x9f) ||
            (b[i] == 0xf0 && b[i + 1] < 0x90) || (b[i] == 0xf4 && b[i + 1] > 0x8f))
            return i;
        i += n;
    }
    return length;
}

static int line_of(const char *bytes, size_t at) {
    int line = 1;
    for (size_t i = 0; i < at; i++)
        line += bytes[i] == '\n';
    return line;
}

static dlc_status check_text(const char *path, const char *bytes, size_t length) {
    if (length >= 2 &&
        (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0))
        return dlc_fail(DLC_ERR_CONFIG, "%s: UTF-16 text; save it as UTF-8", path);
    const char *nul = memchr(bytes, '\0', length);
    if (nul)
        return dlc_fail(DLC_ERR_CONFIG, "%s:%d: a NUL byte; this is no text file", path,
                        line_of(bytes, (size_t)(nul - bytes)));
    size_t bad = dlc_utf8_check(bytes, length);
    if (bad < length)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s:%d: not UTF-8 text (byte 0x%02x); save the file as UTF-8",
                        path, line_of(bytes, bad), (unsigned char)bytes[bad]);
    return DLC_OK;
}

dlc_status dlc_file_read(const char *path, char **bytes, size_t *length) {
    int fd = -1;
    size_t size = 0, got = 0;
    DLC_TRY(open_regular(path, &fd, &size));
    dlc_status rc = DLC_OK;
    char *read_bytes = dlc_alloc(size + 1, 1);
    /* A file that grows meanwhile is cut there, one that shrinks ends early. */
    if (!read_bytes)
        rc = DLC_ERR_NOMEM;
    else if ((got = dlc_read_at(fd, read_bytes, size, 0)) < size && errno)
        rc = dlc_fail(DLC_ERR_CONFIG, "%s: %s", path, strerror(errno));
    close(fd);
    if (rc == DLC_OK)
        rc = check_text(path, read_bytes, got);
    if (rc != DLC_OK) {
        dlc_free(read_bytes);
        return rc;
    }
    if (got >= 3 && memcmp(read_bytes, "\xef\xbb\xbf", 3) == 0) {
        got -= 3;
        memmove(read_bytes, read_bytes + 3, got);
    }
    read_bytes[got] = '\0';
    *bytes = read_bytes;
    *length = got;
    return DLC_OK;
}
