/* Writes a file through a temporary one beside it. */
#include "file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "base/write.h"

static dlc_status cannot_write(const char *path) {
    return dlc_fail(DLC_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

/* A pipe or a folder must not be replaced by a file. */
static dlc_status check_place(const char *path) {
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return dlc_fail(DLC_ERR_IO,
                        "cannot write %s: it exists and is not a regular file", path);
    return DLC_OK;
}

/* Opens a temporary file beside it, with the mode that umask gives. */
static dlc_status open_part(const char *path, char part[PATH_MAX], int *fd) {
    dlc_process_return();
    DLC_TRY(check_place(path));
    if (snprintf(part, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return dlc_fail(DLC_ERR_IO, "cannot write %s: the path is too long", path);
    int opened = mkstemp(part);
    if (opened < 0)
        return cannot_write(path);
    mode_t mask = umask(0);
    umask(mask);
    (void)fchmod(opened, 0666 & ~mask); /* if this fails, it stays private */
    *fd = opened;
    return DLC_OK;
}

dlc_status dlc_tool_file_check(const char *path) {
    char part[PATH_MAX];
    int fd = -1;
    DLC_TRY(open_part(path, part, &fd));
    close(fd);
    unlink(part);
    return DLC_OK;
}

dlc_status dlc_tool_file_write(const char *path, const char *bytes, size_t size) {
    char part[PATH_MAX];
    int fd = -1;
    DLC_TRY(open_part(path, part, &fd));
    dlc_status status = dlc_write_all(fd, bytes, size) == size ? DLC_OK
                                                               : cannot_write(path);
    if (close(fd) != 0 && status == DLC_OK)
        status = cannot_write(path);
    if (status == DLC_OK && rename(part, path) != 0)
        status = cannot_write(path);
    if (status != DLC_OK)
        unlink(part);
    return status;
}
