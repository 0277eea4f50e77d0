/* Creates, locks and tests the folder of a run, and shares its path with all ranks. */
#include "checkpoint/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/sync.h"
#include "base/write.h"
#include "checkpoint/full_params.h"

int dlc_run_folder_is_planned(const dlc_setup *setup) {
    const dlc_settings *run = setup->train_settings;
    return dlc_settings_get_int(run, "checkpoint_interval") > 0 ||
           dlc_settings_get_float(run, "checkpoint_minutes") > 0 ||
           dlc_settings_get_bool(run, "checkpoint_last") ||
           (dlc_settings_is_set(run, "keep_best") &&
            dlc_settings_get_bool(run, "keep_best"));
}

dlc_run_state dlc_run_state_new(void) {
    double unknown = (double)NAN;
    return (dlc_run_state){.training_loss = unknown,
                           .test_loss = unknown,
                           .accuracy = unknown,
                           .tested = -1,
                           .best = -1,
                           .best_loss = unknown,
                           .best_accuracy = unknown};
}

/* ---- Making ------------------------------------------------------------------ */

static dlc_status cannot_make(const char *path, int error) {
    return dlc_fail(DLC_ERR_IO, "the run folder %s cannot be created: %s", path,
                    error == EEXIST ? "a file is in the way" : strerror(error));
}

/* Syncs the parent, so that the name of a new folder survives a power failure. A folder
 * that cannot be flushed is no reason to stop. */
static void sync_parent(const char *path) {
    char *parent = dlc_run_parent(path);
    int opened = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (opened >= 0) {
        (void)dlc_sync(opened, parent);
        close(opened);
    }
    dlc_free(parent);
}

/* Creates one folder; *made: it did not exist. */
static dlc_status make_one(const char *path, int *made) {
    struct stat info;
    *made = mkdir(path, 0777) == 0;
    if (*made) {
        sync_parent(path);
        return DLC_OK;
    }
    int error = errno;
    if (stat(path, &info) == 0)
        return S_ISDIR(info.st_mode) ? DLC_OK : cannot_make(path, EEXIST);
    return cannot_make(path, error == EEXIST ? errno : error);
}

/* Creates a folder and its parents. */
static dlc_status make_named(char *path, int *made) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/' || at[-1] == '/')
            continue;
        *at = '\0';
        dlc_status status = make_one(path, made);
        *at = '/';
        DLC_TRY(status);
    }
    return make_one(path, made);
}

/* Creates runs/NET-TIME, with -2, -3, ... appended if that exists. The
 * time is UTC: local time goes back in autumn, and containers have other zones. */
static dlc_status make_unnamed(dlc_run_folder *folder) {
    enum { TRIES = 1000 };
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    DLC_TRY(make_one(DLC_RUNS, &folder->made_runs));
    if (!gmtime_r(&now, &utc) || !strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%SZ", &utc))
        return dlc_fail(DLC_ERR_INTERNAL, "the time of day is not available");
    for (int i = 1; i <= TRIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        char *path = dlc_format(DLC_RUNS "/%s-%s%s", folder->net, stamp, number);
        if (!path)
            return DLC_ERR_NOMEM;
        dlc_status status = make_one(path, &folder->made);
        if (status == DLC_OK && folder->made) {
            folder->path = path;
            return DLC_OK;
        }
        dlc_free(path);
        DLC_TRY(status);
    }
    return dlc_fail(DLC_ERR_IO, "no free name for a run folder in " DLC_RUNS
                                "; give one with --run-dir");
}

/* ---- Locking ------------------------------------------------------------ */

/* A rank whose launcher was killed is gone after about two seconds. */
enum { LOCK_TIMEOUT_S = 5, LOCK_PAUSE_NS = 50000000, HOLDER_BYTES = 200 };

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

static dlc_status wait_for_lock(int lock, const char *folder, uint64_t began) {
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
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
        if (dlc_since(began) > LOCK_TIMEOUT_S) {
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
static int open_lock(const char *path, int *made) {
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

static dlc_status cannot_lock(const char *folder, const char *path) {
    return dlc_fail(errno == ENOENT ? DLC_ERR_AGAIN : DLC_ERR_IO,
                    "the run folder %s cannot be written: %s: %s", folder, path,
                    strerror(errno));
}

/* DLC_ERR_AGAIN: this is no longer the file at `path`, because the run that has held
 * the lock has removed it. A lock on that file would exclude nobody. */
static dlc_status check_lock_place(int lock, const char *folder, const char *path) {
    int is_there = dlc_is_file_at(lock, path);
    if (is_there < 0)
        return cannot_lock(folder, path);
    return is_there ? DLC_OK : DLC_ERR_AGAIN;
}

/* One attempt: opens the file and locks it. */
static dlc_status try_to_lock(const char *folder, const char *path, uint64_t began,
                              dlc_run_lock *lock) {
    struct stat info;
    int made, opened = open_lock(path, &made);
    if (opened < 0)
        return cannot_lock(folder, path);
    dlc_status status;
    if (fstat(opened, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1)
        status = dlc_fail(DLC_ERR_IO,
                          "%s is in the way: it is not a regular file with one link",
                          path);
    else
        status = wait_for_lock(opened, folder, began);
    if (status == DLC_OK)
        status = check_lock_place(opened, folder, path);
    if (status != DLC_OK) {
        close(opened);
        return status;
    }
    write_holder(opened);
    *lock = (dlc_run_lock){.descriptor = opened, .made = made};
    return DLC_OK;
}

/* DLC_ERR_AGAIN: the folder has been removed meanwhile. If the file system has no locks
 * this warns and succeeds. */
static dlc_status take_lock(const char *folder, dlc_run_lock *lock) {
    enum { TRIES = 100 };
    uint64_t began = dlc_now_ns();
    char *path = dlc_format("%s/.lock", folder);
    if (!path)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_ERR_AGAIN;
    int is_there = 1;
    for (int i = 0; i < TRIES && status == DLC_ERR_AGAIN && is_there; i++) {
        status = try_to_lock(folder, path, began, lock);
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

/* ---- Can it be written? ------------------------------------------------------ */

/* Returns 0, or an errno. */
static int write_probe(int probe, const char *path) {
    const char bytes[4096] = {0};
    if (dlc_write_all(probe, bytes, sizeof bytes) < sizeof bytes)
        return errno;
    return dlc_sync(probe, path);
}

static dlc_status try_writing(const char *folder) {
    char *path = dlc_format("%s/.probe-XXXXXX", folder);
    if (!path)
        return DLC_ERR_NOMEM;
    int probe = mkostemp(path, O_CLOEXEC);
    int error = probe < 0 ? errno : write_probe(probe, path);
    if (probe >= 0 && close(probe) != 0 && !error)
        error = errno;
    if (probe >= 0 && unlink(path) != 0 && !error)
        error = errno;
    dlc_free(path);
    return error ? dlc_fail(DLC_ERR_IO,
                            "the run folder %s cannot be written: %s; give another one "
                            "with --run-dir",
                            folder, strerror(error))
                 : DLC_OK;
}

static dlc_status check_fresh(const dlc_run_folder *folder) {
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder->path, NULL, &listing));
    const dlc_checkpoint_file *newest = listing.count ? &listing.file[listing.count - 1]
                                                      : NULL;
    dlc_status status = DLC_OK;
    if (newest)
        status = dlc_fail(DLC_ERR_CONFIG,
                          "the run folder %s holds checkpoints of another run (net "
                          "'%s', up to iteration %" PRId64
                          "): continue it with --resume auto, or give another folder "
                          "with --run-dir",
                          folder->path, newest->net, newest->iteration);
    dlc_checkpoints_free(&listing);
    return status;
}

/* A run that ends meanwhile, without a checkpoint, removes the folder that it made. */
static dlc_status make_and_lock(dlc_run_folder *folder) {
    enum { TRIES = 100 };
    dlc_status status = DLC_ERR_AGAIN;
    for (int i = 0; i < TRIES && status == DLC_ERR_AGAIN; i++) {
        DLC_TRY(folder->path ? make_named(folder->path, &folder->made)
                             : make_unnamed(folder));
        status = take_lock(folder->path, &folder->lock);
    }
    return status == DLC_ERR_AGAIN ? cannot_make(folder->path, ENOENT) : status;
}

dlc_status dlc_run_folder_claim(dlc_run_folder *folder) {
    if (folder->lock.descriptor >= 0)
        return DLC_OK;
    dlc_process_return();
    DLC_TRY(make_and_lock(folder));
    if (folder->fresh)
        DLC_TRY(check_fresh(folder));
    else
        DLC_TRY(dlc_retention_take_over(folder->path, folder->net, &folder->retention));
    DLC_TRY(try_writing(folder->path));
    dlc_info("run folder: %s", folder->path);
    return DLC_OK;
}

/* ---- Opening and closing ----------------------------------------------------- */

static dlc_status open_as_rank_0(const dlc_setup *setup, const char *resume,
                                 dlc_run_folder *folder) {
    const char *named = dlc_settings_get_string(setup->train_settings, "run_dir");
    DLC_TRY(dlc_run_choose(named, resume, folder));
    return dlc_run_folder_is_planned(setup) ? dlc_run_folder_claim(folder) : DLC_OK;
}

/* Gives the other ranks what rank 0 has chosen. */
static dlc_status share_folder(dlc_job *job, dlc_status status,
                               dlc_run_folder *folder) {
    struct {
        dlc_run_begin begin;
        char path[PATH_MAX];
    } choice = {.begin = folder->begin};
    DLC_TRY(dlc_broadcast_status(job, status));
    snprintf(choice.path, sizeof choice.path, "%s", folder->path ? folder->path : "");
    DLC_TRY(dlc_job_broadcast(job, 0, &choice, sizeof choice));
    folder->begin = choice.begin;
    if (choice.path[0] && !folder->path) {
        folder->path = dlc_strdup(choice.path);
        return folder->path ? DLC_OK : DLC_ERR_NOMEM;
    }
    return DLC_OK;
}

dlc_status dlc_run_folder_open(const dlc_setup *setup, dlc_job *job, const char *resume,
                               dlc_run_folder *folder) {
    dlc_run_folder made = {
        .net = setup->name,
        .state = dlc_run_state_new(),
        .retention = {.keep = dlc_settings_get_int(setup->train_settings, "keep"),
                      .best = -1,
                      .was_best = -1},
        .lock.descriptor = -1};
    dlc_status status = DLC_OK;
    if (dlc_job_rank(job) == 0)
        status = open_as_rank_0(setup, resume, &made);
    status = share_folder(job, status, &made);
    if (status != DLC_OK) {
        dlc_run_folder_close(&made);
        return status;
    }
    *folder = made;
    return DLC_OK;
}

const dlc_lr_schedule *dlc_run_folder_schedule(const dlc_run_folder *folder) {
    return folder && folder->state.has_schedule ? &folder->state.schedule : NULL;
}

/* Removes what this run has created, if it wrote no checkpoint. */
static void remove_made(const dlc_run_folder *folder) {
    char *lock = dlc_format("%s/.lock", folder->path);
    dlc_process_return();
    if (folder->lock.made && lock && unlink(lock) == 0 && folder->made &&
        rmdir(folder->path) == 0 && folder->made_runs) /* fails if it holds files */
        (void)rmdir(DLC_RUNS);
    dlc_free(lock);
}

void dlc_run_folder_close(dlc_run_folder *folder) {
    if (!folder->has_file && folder->lock.descriptor >= 0)
        remove_made(folder);
    dlc_run_lock_release(&folder->lock);
    dlc_free(folder->path);
    dlc_free(folder->from);
    *folder = (dlc_run_folder){.lock.descriptor = -1};
}
