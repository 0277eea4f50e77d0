/* Interprets --run-dir and --resume, and finds the last run of a net. */

#include <ctype.h>
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
#include "base/text.h"
#include "checkpoint/run_folder.h"

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

static dlc_status set_text(char **text, const char *value) {
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

typedef struct last_run {
    const char *net;
    char *name; /* own; NULL: none yet */
} last_run;

/* Takes the entry of the folder if it is a later run of this net and has a checkpoint.
 */
static dlc_status consider_run(void *context, const char *name) {
    last_run *last = context;
    long number;
    int is;
    int64_t iteration = -1;
    if (!time_in_name(name, last->net, &number) ||
        (last->name && !is_later(name, last->name, last->net)))
        return DLC_OK;
    char *path = dlc_format(DLC_RUNS "/%s", name);
    if (!path)
        return DLC_ERR_NOMEM;
    dlc_status status = is_folder(path, &is);
    if (status == DLC_OK && is)
        status = newest_in(path, last->net, &iteration);
    dlc_free(path);
    return status == DLC_OK && iteration >= 0 ? set_text(&last->name, name) : status;
}

/* Sets *path to the last run of the net that has a checkpoint; NULL if there is none.
 */
static dlc_status find_last_run(const char *net, char **path) {
    last_run last = {.net = net};
    dlc_status status = dlc_folder_visit(DLC_RUNS, consider_run, &last);
    *path = NULL;
    if (status == DLC_OK && last.name) {
        *path = dlc_format(DLC_RUNS "/%s", last.name);
        status = *path ? DLC_OK : DLC_ERR_NOMEM;
    }
    dlc_free(last.name);
    return status;
}

/* ---- Choosing ----------------------------------------------------------------- */

/* Starts a new run, since there is none to resume. */
static dlc_status begin_anew(const char *named, dlc_run_folder *folder) {
    int64_t iteration = -1;
    if (named)
        DLC_TRY(newest_in(named, NULL, &iteration));
    if (iteration >= 0)
        return none_of_net(named, folder->net);
    folder->fresh = 1;
    dlc_info("there is no checkpoint of '%s' in %s: starting a new run", folder->net,
             named ? named : DLC_RUNS);
    return DLC_OK;
}

static dlc_status choose_auto(const char *named, dlc_run_folder *folder) {
    int64_t iteration = -1;
    if (named)
        DLC_TRY(set_text(&folder->from, named));
    else
        DLC_TRY(find_last_run(folder->net, &folder->from));
    if (folder->from)
        DLC_TRY(newest_in(folder->from, folder->net, &iteration));
    if (iteration < 0)
        return begin_anew(named, folder);
    folder->begin = DLC_RUN_NEWEST;
    return set_text(&folder->path, folder->from);
}

/* Handles --resume FOLDER, which may hold checkpoints of other nets, too. */
static dlc_status choose_folder(const char *named, const char *resume,
                                dlc_run_folder *folder) {
    int64_t iteration;
    folder->begin = DLC_RUN_NEWEST;
    DLC_TRY(newest_in(resume, folder->net, &iteration));
    if (iteration < 0)
        return none_of_net(resume, folder->net);
    if (named && !is_same_folder(named, resume))
        folder->fresh = 1;
    else
        DLC_TRY(set_text(&folder->path, resume));
    return DLC_OK;
}

/* Handles --resume FILE. Resuming an older checkpoint needs a new folder, so that the
 * later ones stay as they are. */
static dlc_status choose_file(const char *named, const char *resume,
                              dlc_run_folder *folder) {
    char *home = dlc_run_parent(resume);
    const char *slash = strrchr(resume, '/'), *name = slash ? slash + 1 : resume;
    int64_t newest = -1, iteration = -1;
    size_t length;
    int named_home = home && named && is_same_folder(named, home);
    dlc_status status = home ? newest_in(home, folder->net, &newest) : DLC_ERR_NOMEM;
    int is_listed = dlc_checkpoint_name(name, &length, &iteration) &&
                    length == strlen(folder->net) &&
                    strncmp(name, folder->net, length) == 0;
    int is_newest = is_listed && iteration == newest;
    folder->begin = DLC_RUN_FILE;
    if (status == DLC_OK && is_newest && (!named || named_home))
        status = set_text(&folder->path, home);
    else if (status == DLC_OK && named_home && is_listed)
        status = dlc_fail(DLC_ERR_CONFIG,
                          "%s is not the newest checkpoint of its run, which reached "
                          "iteration %" PRId64
                          ": to resume from it, give a new folder with --run-dir",
                          resume, newest);
    else if (status == DLC_OK)
        folder->fresh = 1;
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
                              dlc_run_folder *folder) {
    struct stat info;
    if (stat(resume, &info) != 0)
        return dlc_fail(DLC_ERR_DATA, "--resume %s: %s", resume, strerror(errno));
    DLC_TRY(set_text(&folder->from, resume));
    if (S_ISDIR(info.st_mode))
        return choose_folder(named, resume, folder);
    DLC_TRY(follow_link(&folder->from));
    return choose_file(named, folder->from, folder);
}

dlc_status dlc_run_choose(const char *named, const char *resume,
                          dlc_run_folder *folder) {
    dlc_process_return();
    if (!resume)
        folder->fresh = 1;
    else if (dlc_is_auto(resume))
        DLC_TRY(choose_auto(named, folder));
    else
        DLC_TRY(choose_path(named, resume, folder));
    return named && !folder->path ? set_text(&folder->path, named) : DLC_OK;
}
