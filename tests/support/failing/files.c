/* For LD_PRELOAD: logs the file operations of a process and its children, and makes
 * some of them fail.
 *
 * FILES_LOG=PATH appends a line for each operation to that file, separated by tabs:
 *     CALL file|folder PATH [NEW-PATH]
 * CALL is create (an open that may create a file), write (or pwrite), fsync (or
 * fdatasync), rename, unlink, mkdir, flock, lstat or readdir (for each entry). A call
 * that was made to fail has "failed" in place of file or folder.
 *
 * FILES_FAIL=CALL[,CALL]... makes calls fail with the error FILES_ERROR (a number; EIO
 * if absent), if the path contains FILES_IN and is a FILES_OF, file or folder (both may
 * be absent): the call number FILES_AT of each process (1 if absent), and with
 * FILES_EVER all later ones, too.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) __extension__((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static const char *kind_of_path(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? "folder" : "file";
}

static void path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = '\0';
}

static void note(const char *call, const char *what, const char *path,
                 const char *new_path) {
    const char *log = getenv("FILES_LOG");
    char line[2 * PATH_MAX + 64];
    if (!log || !path[0])
        return;
    int length = snprintf(line, sizeof line, "%s\t%s\t%s%s%s\n", call, what, path,
                          new_path ? "\t" : "", new_path ? new_path : "");
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log,
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)!syscall(SYS_write, fd, line, (size_t)length);
    (void)syscall(SYS_close, fd);
}

/* Is the call in the comma-separated list? */
static int is_in_list(const char *list, const char *call) {
    size_t length = strlen(call);
    while (list && (strncmp(list, call, length) != 0 ||
                    (list[length] && list[length] != ','))) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return list != NULL;
}

static int is_wanted(const char *name, const char *text, int whole) {
    const char *wanted = getenv(name);
    return !wanted ||
           (whole ? strcmp(text, wanted) == 0 : strstr(text, wanted) != NULL);
}

/* Logs the call; returns 1 and sets errno if it must fail. */
static int fails(const char *call, const char *what, const char *path,
                 const char *new_path) {
    static pid_t counted;
    static long count;
    const char *wanted = getenv("FILES_FAIL"), *at = getenv("FILES_AT");
    const char *error = getenv("FILES_ERROR");
    int before = errno, is_it = is_in_list(wanted, call) &&
                                is_wanted("FILES_OF", what, 1) &&
                                is_wanted("FILES_IN", path, 0);
    if (counted != getpid()) {
        counted = getpid();
        count = 0;
    }
    if (is_it) {
        long n = at ? strtol(at, NULL, 10) : 1;
        count++;
        is_it = getenv("FILES_EVER") ? count >= n : count == n;
    }
    note(call, is_it ? "failed" : what, path, new_path);
    errno = is_it ? error ? (int)strtol(error, NULL, 10) : EIO : before;
    return is_it;
}

static int fails_at(const char *call, int fd) {
    char path[PATH_MAX];
    int before = errno;
    path_of(fd, path);
    const char *what = kind_of_path(path);
    errno = before;
    return fails(call, what, path, NULL);
}

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
        if (fails("create", "file", path, NULL))
            return -1;
    }
    return REAL(open)(path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    return fails_at("write", fd) ? -1 : REAL(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    return fails_at("write", fd) ? -1 : REAL(pwrite)(fd, bytes, length, at);
}

int fsync(int fd) {
    return fails_at("fsync", fd) ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd) {
    return fails_at("fsync", fd) ? -1 : REAL(fdatasync)(fd);
}

int rename(const char *from, const char *to) {
    return fails("rename", kind_of_path(from), from, to) ? -1 : REAL(rename)(from, to);
}

int unlink(const char *path) {
    return fails("unlink", kind_of_path(path), path, NULL) ? -1 : REAL(unlink)(path);
}

int mkdir(const char *path, mode_t mode) {
    return fails("mkdir", "folder", path, NULL) ? -1 : REAL(mkdir)(path, mode);
}

int flock(int fd, int operation) {
    return fails_at("flock", fd) ? -1 : REAL(flock)(fd, operation);
}

int lstat(const char *path, struct stat *info) {
    return fails("lstat", "file", path, NULL) ? -1 : REAL(lstat)(path, info);
}

struct dirent *readdir(DIR *dir) {
    return fails_at("readdir", dirfd(dir)) ? NULL : REAL(readdir)(dir);
}
