/* File descriptors fetched from other processes (fds.c), by which GPU memory is shared.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fds.h"
#include "support/test.h"

/* A child that opens what `make` returns and waits until the pipe is closed. */
typedef struct owner {
    pid_t pid;
    int fd;
    uint64_t identity;
    int leave; /* its end of the pipe: when closed, the child exits */
} owner;

static owner start_owner(size_t bytes) {
    int down[2], up[2];
    owner made = {.fd = -1};
    ck_assert_int_eq(pipe(down), 0);
    ck_assert_int_eq(pipe(up), 0);
    made.pid = fork();
    ck_assert_int_ge(made.pid, 0);
    if (made.pid == 0) {
        char byte;
        close(down[1]);
        fds_allow();
        made.fd = fds_pass() ? fds_make(bytes) : -2;
        made.identity = made.fd >= 0 ? fds_identity(made.fd) : 0;
        if (made.fd >= 0 && pwrite(made.fd, "seen", 4, 0) != 4)
            made.fd = -3;
        if (write(up[1], &made, sizeof made) == sizeof made)
            (void)!read(down[0], &byte, 1);
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    pid_t pid = made.pid;
    ck_assert_int_eq(read(up[0], &made, sizeof made), sizeof made);
    close(up[0]);
    made.pid = pid;
    made.leave = down[1];
    return made;
}

static void end_owner(const owner *from) {
    close(from->leave);
    ck_assert_int_eq(waitpid(from->pid, NULL, 0), from->pid);
}

/* -2: the system forbids it, and fds_pass reports that. */
static int may_pass(const owner *from) {
    if (from->fd == -2)
        ck_assert_int_eq(fds_pass(), 0);
    else
        ck_assert_int_ge(from->fd, 0);
    return from->fd != -2;
}

TEST(is_fetched_and_outlives_its_owner) {
    char text[5] = "";
    owner from = start_owner(8192);
    if (may_pass(&from)) {
        int fd = fds_take((uint32_t)from.pid, from.fd);
        ck_assert_msg(fd >= 0, "%s", strerror(errno));
        ck_assert_uint_eq(fds_identity(fd), from.identity);
        end_owner(&from);
        ck_assert_int_eq(pread(fd, text, 4, 0), 4);
        ck_assert_str_eq(text, "seen");
        ck_assert_int_eq(ftruncate(fd, 1), -1); /* sealed */
        close(fd);
    } else {
        end_owner(&from);
    }
}

TEST(what_is_not_there) {
    owner from = start_owner(4);
    if (may_pass(&from)) {
        ck_assert_int_eq(fds_take((uint32_t)from.pid, 999), -1);
        ck_assert_int_eq(errno, EBADF);
    }
    end_owner(&from);
    ck_assert_int_eq(fds_take((uint32_t)from.pid, 0), -1);
    ck_assert_int_eq(errno, ESRCH);
    ck_assert_int_eq(fds_take(0, 0), -1);
}

/* Each file has its own, also under a reused descriptor number. */
TEST(identities_differ) {
    int first = fds_make(1), second = fds_make(1);
    uint64_t a = fds_identity(first), b = fds_identity(second);
    ck_assert(first >= 0 && second >= 0 && a != 0 && b != 0 && a != b);
    close(first);
    int third = fds_make(1);
    ck_assert_int_eq(third, first);
    ck_assert_uint_ne(fds_identity(third), a);
    int copy = dup(second);
    ck_assert_uint_eq(fds_identity(copy), b);
    close(copy);
    close(second);
    close(third);
    /* Other files have none. */
    ck_assert_uint_eq(fds_identity(STDOUT_FILENO), 0);
    ck_assert_uint_eq(fds_identity(-1), 0);
}

TEST(too_much) {
    ck_assert_int_eq(fds_make(SIZE_MAX), -1);
    ck_assert_int_ne(errno, 0);
}
