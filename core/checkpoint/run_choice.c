/* Interprets --run-dir and --resume, and finds the last run of a net. */
#include "checkpoint/run_choice.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "checkpoint/listing.h"

char *dlc_run_parent(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length ? dlc_strndup(path, length) : dlc_strdup(".");
}

static int is_same_folder(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static dlc_status set(char **text, const char *value) {
    dlc_free(*text);
    *text = dlc_strdup(value);
    return *text ? DLC_OK : DLC_ERR_NOMEM;
}

/* The iteration of the newest checkpoint in a folder; -1: it has none. */
static dlc_status newest_in(const char *folder, const char *net, int64_t *iteration) {
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder, net, &listing));
    *iteration = listing.count ? listing.file[listing.count - 1].iteration : -1;
    dlc_checkpoints_free(&listing);
    return DLC_OK;
}

/* Fails because the folder has no checkpoint of the net to resume from. */
static dlc_status none_of_net(const char *folder, const char *net) {
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder, NULL, &listing));
    dlc_status status =
        listing.count
            ? dlc_fail(DLC_ERR_DATA,
                       "%s holds checkpoints of net '%s', but none of this run's net "
                       "'%s' ([net] name)",
                       folder, listing.file[listing.count - 1].net, net)
            : dlc_fail(DLC_ERR_DATA, "%s holds no checkpoint to resume from", folder);
    dlc_checkpoints_free(&listing);
    return status;
}

/* ---- The last run ------------------------------------------------------------- */

#define STAMP "00000000-000000Z" /* the form of the times in names, 0 for a digit */

/* The time, UTC, in "NET-YYYYMMDD-HHMMSSZ" or "NET-YYYYMMDD-HHMMSSZ-2"; NULL in other
 * names. */
static const char *time_in_name(const char *name, const char *net, long *number) {
    static const char pattern[] = STAMP;
    size_t length = strlen(net);
    if (strncmp(name, net, length) != 0 || name[length] != '-')
        return NULL;
    const char *stamp = name + length + 1, *at = stamp;
    for (size_t i = 0; i < sizeof pattern - 1; i++, at++)
        if (pattern[i] == '0' ? !isdigit((unsigned char)*at) : *at != pattern[i])
            return NULL;
    char *end = NULL;
    *number = 1;
    if (*at == '-' && isdigit((unsigned char)at[1])) {
        *number = strtol(at + 1, &end, 10);
        at = end;
    }
    return *at ? NULL : stamp;
}

/* The later of two runs' names. */
static int is_later(const char *name, const char *than, const char *net) {
    long number = 0, other_number = 0;
    const char *stamp = time_in_name(name, net, &number);
    const char *other = time_in_name(than, net, &other_number);
    int order = stamp && other ? strncmp(stamp, other, strlen(STAMP)) : 0;
    return order > 0 || (order == 0 && number > other_number);
}

/* Sets *is to whether `path` is a folder. A path that does not exist, or disappears
 * meanwhile, is none. */
static dlc_status is_folder(const char *path, int *is) {
    struct stat info;
    *is = 0;
    if (stat(path, &info) == 0)
        *is = S_ISDIR(info.st_mode);
    else if (errno != ENOENT && errno != ENOTDIR)
        return dlc_fail(DLC_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    return DLC_OK;
}

/* Sets *last to the entry if it is a later run of this net and has a checkpoint. */
static dlc_status consider(const char *name, const char *net, char **last) {
    long number;
    int is;
    int64_t iteration = -1;
    if (!time_in_name(name, net, &number) || (*last && !is_later(name, *last, net)))
        return DLC_OK;
    char *path = dlc_format(DLC_RUNS "/%s", name);
    if (!path)
        return DLC_ERR_NOMEM;
    dlc_status status = is_folder(path, &is);
    if (status == DLC_OK && is)
        status = newest_in(path, net, &iteration);
    dlc_free(path);
    return status == DLC_OK && iteration >= 0 ? set(last, name) : status;
}

/* Sets *path to the last run of the net that has a checkpoint; NULL if there is none.
 */
static dlc_status find_last_run(const char *net, char **path) {
    char *last = NULL;
    dlc_status status = DLC_OK;
    *path = NULL;
    DIR *dir = opendir(DLC_RUNS);
    if (!dir && errno == ENOENT)
        return DLC_OK;
    if (!dir)
        return dlc_fail(DLC_ERR_IO, "folder " DLC_RUNS " cannot be read: %s",
                        strerror(errno));
    while (status == DLC_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            status = dlc_fail(DLC_ERR_IO, "folder " DLC_RUNS " cannot be read: %s",
                              strerror(errno));
        if (!entry)
            break;
        status = consider(entry->d_name, net, &last);
    }
    closedir(dir);
    if (status == DLC_OK && last) {
        *path = dlc_format(DLC_RUNS "/%s", last);
        status = *path ? DLC_OK : DLC_ERR_NOMEM;
    }
    dlc_free(last);
    return status;
}

/* ---- Choosing ----------------------------------------------------------------- */

/* Starts a new run, since there is none to resume. */
static dlc_status begin_anew(const char *named, dlc_run_choice *choice) {
    int64_t iteration = -1;
    if (named)
        DLC_TRY(newest_in(named, NULL, &iteration));
    if (iteration >= 0)
        return none_of_net(named, choice->net);
    choice->fresh = 1;
    dlc_info("there is no checkpoint of '%s' in %s: starting a new run", choice->net,
             named ? named : DLC_RUNS);
    return DLC_OK;
}

static dlc_status choose_auto(const char *named, dlc_run_choice *choice) {
    int64_t iteration = -1;
    if (named)
        DLC_TRY(set(&choice->from, named));
    else
        DLC_TRY(find_last_run(choice->net, &choice->from));
    if (choice->from)
        DLC_TRY(newest_in(choice->from, choice->net, &iteration));
    if (iteration < 0)
        return begin_anew(named, choice);
    choice->begin = DLC_RUN_NEWEST;
    return set(&choice->path, choice->from);
}

/* Handles --resume FOLDER, which may hold checkpoints of other nets, too. */
static dlc_status choose_folder(const char *named, const char *resume,
                                dlc_run_choice *choice) {
    int64_t iteration;
    choice->begin = DLC_RUN_NEWEST;
    DLC_TRY(newest_in(resume, choice->net, &iteration));
    if (iteration < 0)
        return none_of_net(resume, choice->net);
    if (named && !is_same_folder(named, resume))
        choice->fresh = 1;
    else
        DLC_TRY(set(&choice->path, resume));
    return DLC_OK;
}

/* Handles --resume FILE. Resuming an older checkpoint needs a new folder, so that the
 * later ones stay as they are. */
static dlc_status choose_file(const char *named, const char *resume,
                              dlc_run_choice *choice) {
    char *home = dlc_run_parent(resume);
    const char *slash = strrchr(resume, '/'), *name = slash ? slash + 1 : resume;
    int64_t newest = -1, iteration = -1;
    size_t length;
    int named_home = home && named && is_same_folder(named, home);
    dlc_status status = home ? newest_in(home, choice->net, &newest) : DLC_ERR_NOMEM;
    int is_listed = dlc_checkpoint_name(name, &length, &iteration) &&
                    length == strlen(choice->net) &&
                    strncmp(name, choice->net, length) == 0;
    int is_newest = is_listed && iteration == newest;
    choice->begin = DLC_RUN_FILE;
    if (status == DLC_OK && is_newest && (!named || named_home))
        status = set(&choice->path, home);
    else if (status == DLC_OK && named_home && is_listed)
        status = dlc_fail(DLC_ERR_CONFIG,
                          "%s is not the newest checkpoint of its run, which reached "
                          "iteration %" PRId64
                          ": to resume from it, give a new folder with --run-dir",
                          resume, newest);
    else if (status == DLC_OK)
        choice->fresh = 1;
    dlc_free(home);
    return status;
}

/* Replaces a link to a checkpoint beside it, such as `last`, by that checkpoint. */
static dlc_status follow_link(char **path) {
    char file[NAME_MAX + 1];
    ssize_t length = readlink(*path, file, sizeof file);
    if (length <= 0 || length == sizeof file || memchr(file, '/', (size_t)length))
        return DLC_OK;
    char *home = dlc_run_parent(*path);
    char *target = home ? dlc_format("%s/%.*s", home, (int)length, file) : NULL;
    dlc_free(home);
    if (!target)
        return DLC_ERR_NOMEM;
    dlc_free(*path);
    *path = target;
    return DLC_OK;
}

static dlc_status choose_path(const char *named, const char *resume,
                              dlc_run_choice *choice) {
    struct stat info;
    if (stat(resume, &info) != 0)
        return dlc_fail(DLC_ERR_DATA, "--resume %s: %s", resume, strerror(errno));
    DLC_TRY(set(&choice->from, resume));
    if (S_ISDIR(info.st_mode))
        return choose_folder(named, resume, choice);
    DLC_TRY(follow_link(&choice->from));
    return choose_file(named, choice->from, choice);
}

dlc_status dlc_run_choose(const char *named, const char *resume,
                          dlc_run_choice *choice) {
    dlc_process_return();
    if (!resume)
        choice->fresh = 1;
    else if (strcmp(resume, "auto") == 0)
        DLC_TRY(choose_auto(named, choice));
    else
        DLC_TRY(choose_path(named, resume, choice));
    return named && !choice->path ? set(&choice->path, named) : DLC_OK;
}
