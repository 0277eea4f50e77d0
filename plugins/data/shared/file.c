/* Opens files and reads them from a given byte on. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "read.h"

dlc_status file_open(const char *path, data_file *made) {
    struct stat info;
    /* O_NONBLOCK: a pipe must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return host->fail(DLC_ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return host->fail(DLC_ERR_DATA, "%s is not a file", path);
    }
    *made = (data_file){.path = path, .fd = fd, .bytes = info.st_size};
    return DLC_OK;
}

void file_close(data_file *of) {
    if (of->fd >= 0)
        close(of->fd);
    of->fd = -1;
}

dlc_status file_read(const data_file *in, int64_t begin, void *to, size_t bytes) {
    size_t got = read_at(in->fd, to, bytes, (off_t)begin);
    long long at = (long long)begin + (long long)got;
    if (got == bytes)
        return DLC_OK;
    if (errno)
        return host->fail(DLC_ERR_DATA, "cannot read %s at byte %lld: %s", in->path, at,
                          strerror(errno));
    return host->fail(DLC_ERR_DATA, "%s ends at byte %lld while it is being read",
                      in->path, at);
}

dlc_status file_make_unnamed(data_file *made) {
    const char *set = getenv("TMPDIR"), *folder = set && *set ? set : "/var/tmp";
    char path[4096];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && snprintf(path, sizeof path, "%s/dlcore-XXXXXX", folder) <
                      (int)sizeof path) { /* not every file system has O_TMPFILE */
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            unlink(path);
    }
    if (fd < 0)
        return host->fail(DLC_ERR_IO,
                          "cannot make a file for unpacked data in %s: %s; TMPDIR "
                          "says where",
                          folder, strerror(errno));
    *made = (data_file){.path = "the file of unpacked data", .fd = fd};
    return DLC_OK;
}

dlc_status file_append(data_file *to, const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t n = pwrite(to->fd, (const char *)bytes + done, count - done, to->bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return host->fail(DLC_ERR_IO, "cannot unpack data: %s; TMPDIR says where",
                              strerror(n < 0 ? errno : ENOSPC));
        done += (size_t)n;
        to->bytes += n;
    }
    return DLC_OK;
}
