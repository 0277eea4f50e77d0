/* See run_folder.h. */
#include "train/checkpoint/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint/listing.h"
#include "train/checkpoint/run_choice.h"
#include "train/checkpoint/run_lock.h"

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
    return dlc_fail(DLC_ERR_IO, "the run folder %s cannot be made: %s", path,
                    error == EEXIST ? "a file is in the way" : strerror(error));
}

/* So that the name of a new folder outlives a power cut. A file system that cannot do
 * it is no reason to stop. */
static void sync_parent(const char *path) {
    char *parent = dlc_run_parent(path);
    int opened = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (opened >= 0) {
        (void)fsync(opened);
        close(opened);
    }
    dlc_free(parent);
}

/* One folder; *made: it was not there. */
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

/* With those that it lies in. */
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

/* runs/NET-TIME, or with -2, -3, ... where that is taken. */
static dlc_status make_unnamed(dlc_run_folder *folder) {
    enum { TRIES = 1000 };
    char stamp[32];
    time_t now = time(NULL);
    struct tm local;
    DLC_TRY(make_one(DLC_RUNS, &folder->made_runs));
    if (!localtime_r(&now, &local) ||
        !strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local))
        return dlc_fail(DLC_ERR_INTERNAL, "the time of day cannot be had");
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
    return dlc_fail(DLC_ERR_IO, "no name is left for a run folder in " DLC_RUNS
                                "; name one with --run-dir");
}

/* ---- Can it be written? ------------------------------------------------------ */

static int write_probe(int probe) {
    enum { BYTES = 4096 };
    char bytes[BYTES] = {0};
    ssize_t written = write(probe, bytes, sizeof bytes);
    if (written >= 0 && written < BYTES)
        errno = ENOSPC;
    return written == BYTES && fsync(probe) == 0;
}

static dlc_status try_writing(const char *folder) {
    char *path = dlc_format("%s/.probe-XXXXXX", folder);
    if (!path)
        return DLC_ERR_NOMEM;
    int probe = mkostemp(path, O_CLOEXEC);
    int error = probe < 0 || !write_probe(probe) ? errno : 0;
    if (probe >= 0 && close(probe) != 0 && !error)
        error = errno;
    if (probe >= 0 && unlink(path) != 0 && !error)
        error = errno;
    dlc_free(path);
    return error ? dlc_fail(DLC_ERR_IO,
                            "the run folder %s cannot be written: %s; name another one "
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
                          "): go on from them with --resume auto, or name another "
                          "folder with --run-dir",
                          folder->path, newest->net, newest->iteration);
    dlc_checkpoints_free(&listing);
    return status;
}

dlc_status dlc_run_folder_need(dlc_run_folder *folder) {
    if (folder->lock.descriptor >= 0)
        return DLC_OK;
    DLC_TRY(folder->path ? make_named(folder->path, &folder->made)
                         : make_unnamed(folder));
    DLC_TRY(dlc_run_lock_take(folder->path, &folder->lock));
    if (folder->fresh)
        DLC_TRY(check_fresh(folder));
    else
        DLC_TRY(dlc_retention_take_over(folder->path, folder->net, &folder->retention));
    DLC_TRY(try_writing(folder->path));
    dlc_info("run folder: %s", folder->path);
    return DLC_OK;
}

/* ---- Opening and closing ----------------------------------------------------- */

/* What the other ranks need to know. */
typedef struct run_news {
    dlc_status status;
    dlc_run_begin begin;
    char path[PATH_MAX];
    char detail[1024];
} run_news;

static dlc_status open_as_rank_0(const dlc_setup *setup, const char *resume,
                                 dlc_run_folder *folder) {
    const char *named = dlc_settings_get_string(setup->train_settings, "run_dir");
    DLC_TRY(dlc_run_choose(named, resume, folder));
    return dlc_run_folder_is_planned(setup) ? dlc_run_folder_need(folder) : DLC_OK;
}

static dlc_status share(dlc_job *job, dlc_status status, dlc_run_folder *folder) {
    run_news *news = dlc_alloc(1, sizeof *news);
    if (!news)
        return DLC_ERR_NOMEM;
    news->status = status;
    news->begin = folder->begin;
    snprintf(news->path, sizeof news->path, "%s", folder->path ? folder->path : "");
    if (status != DLC_OK)
        snprintf(news->detail, sizeof news->detail, "%s", dlc_detail());
    status = dlc_job_broadcast(job, 0, news, sizeof *news);
    if (status == DLC_OK && news->status != DLC_OK)
        status = dlc_fail(news->status, "%s", news->detail);
    folder->begin = news->begin;
    if (status == DLC_OK && news->path[0] && !folder->path) {
        folder->path = dlc_strdup(news->path);
        status = folder->path ? DLC_OK : DLC_ERR_NOMEM;
    }
    dlc_free(news);
    return status;
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
    status = share(job, status, &made);
    if (status != DLC_OK) {
        dlc_run_folder_close(&made);
        return status;
    }
    *folder = made;
    return DLC_OK;
}

const dlc_rate_schedule *dlc_run_folder_schedule(const dlc_run_folder *folder) {
    return folder && folder->state.has_schedule ? &folder->state.schedule : NULL;
}

/* A run that came to nothing leaves nothing behind. */
static void remove_made(const dlc_run_folder *folder) {
    char *lock = dlc_format("%s/.lock", folder->path);
    if (folder->lock.made && lock && unlink(lock) == 0 && folder->made &&
        rmdir(folder->path) == 0 && folder->made_runs) /* there may be files in it */
        (void)rmdir(DLC_RUNS);
    dlc_free(lock);
}

void dlc_run_folder_close(dlc_run_folder *folder) {
    if (!folder->has_file && folder->lock.descriptor >= 0)
        remove_made(folder);
    dlc_run_lock_leave(&folder->lock);
    dlc_free(folder->path);
    dlc_free(folder->from);
    *folder = (dlc_run_folder){.lock.descriptor = -1};
}
