/* For LD_PRELOAD: in folders whose path ends with FAIL_READDIR_IN, readdir() returns
 * one entry and then fails with EIO, like a disk that fails half way. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int should_fail(DIR *dir) {
    char link[64], path[PATH_MAX];
    const char *end = getenv("FAIL_READDIR_IN");
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(dir));
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!end || length < 0 || (size_t)length < strlen(end))
        return 0;
    path[length] = '\0';
    return strcmp(path + (size_t)length - strlen(end), end) == 0;
}

struct dirent *readdir(DIR *dir) {
    static struct dirent *(*real)(DIR *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    if (should_fail(dir) && telldir(dir) != 0) {
        errno = EIO;
        return NULL;
    }
    return real(dir);
}
