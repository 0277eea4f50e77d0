/* For LD_PRELOAD: makes send() number FAIL_SEND_AT of each process fail with the error
 * number FAIL_SEND_ERROR, and with FAIL_SEND_EVER all later ones. FAIL_SEND_IN=child
 * exempts the process that was started, FAIL_SEND_IN=parent all others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pid_t first, counted;
static long count;

__attribute__((constructor)) static void begin(void) {
    first = getpid();
}

static int fails(void) {
    const char *at = getenv("FAIL_SEND_AT"), *in = getenv("FAIL_SEND_IN");
    if (counted != getpid()) {
        counted = getpid();
        count = 0;
    }
    if (!at || (in && (strcmp(in, "child") == 0) == (counted == first)))
        return 0;
    long n = strtol(at, NULL, 10);
    count++;
    return getenv("FAIL_SEND_EVER") ? count >= n : count == n;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    static ssize_t (*real)(int, const void *, size_t, int);
    const char *error = getenv("FAIL_SEND_ERROR");
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "send");
    if (fails()) {
        errno = error ? (int)strtol(error, NULL, 10) : ENOBUFS;
        return -1;
    }
    return real(fd, bytes, length, flags);
}
