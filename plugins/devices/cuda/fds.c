/* Passes file descriptors between processes by pidfd_getfd (Linux 5.6): no socket is
 * needed and no thread to serve it, and the numbers may be transmitted in any way.
 *
 * The kernel allows it to a process that may trace the owner. With Yama's usual setting
 * (ptrace_scope 1) that is only the parent, so a process that exports memory sets
 * PR_SET_PTRACER to ANY: from then on any process of the same user may trace it, that
 * is read and change its memory, as on every system without Yama. That weakens the
 * isolation between programs of one user, not between users.
 */
#include "fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fds_take(uint32_t pid, int fd) {
    int process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (process < 0)
        return -1;
    int taken = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    int error = errno;
    close(process);
    errno = error;
    return taken;
}

/* 0 to 3; 0 without Yama. */
static int yama_scope(void) {
    int scope = 0;
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &scope) != 1) // NOLINT(cert-err34-c): 0 then
        scope = 0;
    (void)fclose(file);
    return scope;
}

int fds_pass(void) {
    int scope = yama_scope();
    if (scope > 2 || (scope == 2 && geteuid() != 0))
        return 0;
    int own = fds_take((uint32_t)getpid(), STDERR_FILENO);
    if (own < 0 && errno != EBADF) /* a closed one: it was looked up */
        return 0;
    if (own >= 0)
        close(own);
    return 1;
}

void fds_allow(void) {
    if (yama_scope() == 1)
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

int fds_make(size_t bytes) {
    int fd = memfd_create("dlcore", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

uint64_t fds_identity(int fd) {
    struct stat about;
    /* Only memory files have seals. */
    if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &about) != 0)
        return 0;
    return about.st_ino;
}
