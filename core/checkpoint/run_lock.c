/* Locks a run's folder with flock(). */
#include "checkpoint/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sync.h"

/* A rank whose launcher was killed is gone after about two seconds. */
#define TIMEOUT_S 5
#define PAUSE_NS 50000000

enum { HOLDER_BYTES = 200 };

/* Reads what the holder has written about itself, for a message. */
static void read_holder(int lock, char holder[HOLDER_BYTES]) {
    ssize_t bytes = pread(lock, holder, HOLDER_BYTES - 1, 0);
    holder[bytes > 0 ? bytes : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    for (char *at = holder; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    if (!holder[0])
        snprintf(holder, HOLDER_BYTES, "another process");
}

static void write_holder(int lock) {
    char host[65] = "", text[HOLDER_BYTES];
    (void)gethostname(host, sizeof host - 1);
    int bytes = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(),
                         host);
    if (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)bytes, 0) != bytes)
        dlc_debug("the run folder's lock does not say who holds it: %s",
                  strerror(errno));
}

static dlc_status take(int lock, const char *folder, uint64_t began) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    char holder[HOLDER_BYTES];
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        if (error == ENOLCK || dlc_is_unsupported(error)) {
            dlc_warn("%s cannot be locked: its file system has no locks, so another "
                     "run could use it, too",
                     folder);
            return DLC_OK;
        }
        if (error != EWOULDBLOCK && error != EINTR)
            return dlc_fail(DLC_ERR_IO, "%s cannot be locked: %s", folder,
                            strerror(error));
        if (dlc_since(began) > TIMEOUT_S) {
            read_holder(lock, holder);
            return dlc_fail(DLC_ERR_CONFIG,
                            "the run folder %s is in use by %s; wait for that run to "
                            "end, or give another folder with --run-dir",
                            folder, holder);
        }
        (void)nanosleep(&pause, NULL);
    }
    return DLC_OK;
}

/* Returns a descriptor, or -1 with errno set. */
static int open_file(const char *path, int *made) {
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int opened;
    do {
        opened = open(path, flags | O_CREAT | O_EXCL, 0666);
        *made = opened >= 0;
        if (opened < 0 && errno == EEXIST)
            opened = open(path, flags | O_CREAT, 0666);
    } while (opened < 0 && errno == EINTR);
    return opened;
}

static dlc_status cannot_write(const char *folder, const char *path) {
    return dlc_fail(errno == ENOENT ? DLC_ERR_AGAIN : DLC_ERR_IO,
                    "the run folder %s cannot be written: %s: %s", folder, path,
                    strerror(errno));
}

/* DLC_ERR_AGAIN: this is no longer the file at `path`, because the run that has held
 * the lock has removed it. A lock on that file would exclude nobody. */
static dlc_status check_place(int lock, const char *folder, const char *path) {
    int is_there = dlc_is_file_at(lock, path);
    if (is_there < 0)
        return cannot_write(folder, path);
    return is_there ? DLC_OK : DLC_ERR_AGAIN;
}

/* One attempt: opens the file and locks it. */
static dlc_status try_to_take(const char *folder, const char *path, uint64_t began,
                              dlc_run_lock *lock) {
    struct stat info;
    int made, opened = open_file(path, &made);
    if (opened < 0)
        return cannot_write(folder, path);
    dlc_status status;
    if (fstat(opened, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1)
        status = dlc_fail(DLC_ERR_IO,
                          "%s is in the way: it is not a regular file with one link",
                          path);
    else
        status = take(opened, folder, began);
    if (status == DLC_OK)
        status = check_place(opened, folder, path);
    if (status != DLC_OK) {
        close(opened);
        return status;
    }
    write_holder(opened);
    *lock = (dlc_run_lock){.descriptor = opened, .made = made};
    return DLC_OK;
}

dlc_status dlc_run_lock_take(const char *folder, dlc_run_lock *lock) {
    enum { TRIES = 100 };
    uint64_t began = dlc_now_ns();
    char *path = dlc_format("%s/.lock", folder);
    if (!path)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_ERR_AGAIN;
    int is_there = 1;
    for (int i = 0; i < TRIES && status == DLC_ERR_AGAIN && is_there; i++) {
        status = try_to_take(folder, path, began, lock);
        is_there = access(folder, F_OK) == 0;
    }
    if (status == DLC_ERR_AGAIN && is_there)
        status = dlc_fail(DLC_ERR_IO,
                          "the run folder %s cannot be written: no file %s is there "
                          "after %d attempts",
                          folder, path, TRIES);
    dlc_free(path);
    return status;
}

void dlc_run_lock_release(dlc_run_lock *lock) {
    if (lock->descriptor >= 0)
        close(lock->descriptor);
    lock->descriptor = -1;
}
