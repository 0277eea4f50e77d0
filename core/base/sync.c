/* Flushes files and folders to the disk, where the file system can, and compares open
 * files with names. */
#include "base/sync.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

/* Linux's own ENOTSUPP, which autofs and some network file systems let through. */
#define NOT_SUPPORTED 524

int dlc_is_file_at(int fd, const char *path) {
    struct stat ours, there;
    if (fstat(fd, &ours) != 0)
        return -1;
    if (lstat(path, &there) != 0)
        return errno == ENOENT ? 0 : -1;
    return ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

int dlc_is_unsupported(int error) {
    return error == EOPNOTSUPP || error == ENOTSUP || error == ENOSYS ||
           error == EINVAL || error == NOT_SUPPORTED;
}

int dlc_sync(int fd, const char *path) {
    static _Atomic int has_warned;
    int error;
    do
        error = fsync(fd) ? errno : 0;
    while (error == EINTR);
    if (!error || !dlc_is_unsupported(error))
        return error;
    if (!atomic_exchange(&has_warned, 1))
        dlc_warn("%s cannot be flushed (%s): its file system does not support that, so "
                 "what was written may be lost if the power fails",
                 path, strerror(error == NOT_SUPPORTED ? EOPNOTSUPP : error));
    return 0;
}
