/* Lists the checkpoints of a folder, and removes, renames and links them. */
#include "checkpoint/listing.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"

#define SUFFIX ".safetensors"

enum { DIGITS_LEAST = 8, DIGITS_MOST = 18 }; /* of an iteration; 10^18 fits int64_t */

char *dlc_checkpoint_path(const char *folder, const char *net, int64_t iteration) {
    return dlc_format("%s/%s-%08" PRId64 SUFFIX, folder, net, iteration);
}

int dlc_checkpoint_name(const char *name, size_t *net_length, int64_t *iteration) {
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name)
        return 0;
    size_t digits = strspn(dash + 1, "0123456789");
    if (digits < DIGITS_LEAST || digits > DIGITS_MOST ||
        strcmp(dash + 1 + digits, SUFFIX) != 0)
        return 0;
    *net_length = (size_t)(dash - name);
    *iteration = strtoll(dash + 1, NULL, 10);
    return 1;
}

static int is_of_net(const char *name, size_t net_length, const char *net) {
    return !net || (strlen(net) == net_length && strncmp(name, net, net_length) == 0);
}

/* What dlc_checkpoints_read collects. */
typedef struct reading {
    const char *folder, *net;
    dlc_checkpoints listing;
} reading;

static dlc_status add_checkpoint(void *context, const char *name) {
    reading *read = context;
    dlc_checkpoints *listing = &read->listing;
    size_t net_length, count = listing->count;
    int64_t iteration;
    if (!dlc_checkpoint_name(name, &net_length, &iteration) ||
        !is_of_net(name, net_length, read->net))
        return DLC_OK;
    dlc_checkpoint_file *grown = dlc_grow_by_one(listing->file, count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    listing->file = grown;
    grown[count] = (dlc_checkpoint_file){
        .path = dlc_format("%s/%s", read->folder, name),
        .net = dlc_strndup(name, net_length),
        .iteration = iteration};
    listing->count++;
    return grown[count].path && grown[count].net ? DLC_OK : DLC_ERR_NOMEM;
}

static int by_iteration(const void *a, const void *b) {
    const dlc_checkpoint_file *first = a, *second = b;
    if (first->iteration != second->iteration)
        return first->iteration < second->iteration ? -1 : 1;
    return strcmp(first->path, second->path);
}

static dlc_status cannot_read(const char *folder) {
    return dlc_fail(DLC_ERR_IO, "folder %s cannot be read: %s", folder,
                    strerror(errno));
}

dlc_status dlc_folder_visit(const char *folder,
                            dlc_status (*visit)(void *context, const char *name),
                            void *context) {
    dlc_status status = DLC_OK;
    dlc_process_return();
    DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT ? DLC_OK : cannot_read(folder);
    while (status == DLC_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            status = cannot_read(folder);
        if (!entry)
            break;
        status = visit(context, entry->d_name);
    }
    closedir(dir);
    return status;
}

dlc_status dlc_checkpoints_read(const char *folder, const char *net,
                                dlc_checkpoints *listing) {
    reading read = {.folder = folder, .net = net};
    *listing = read.listing;
    dlc_status status = dlc_folder_visit(folder, add_checkpoint, &read);
    if (status != DLC_OK) {
        dlc_checkpoints_free(&read.listing);
        return status;
    }
    if (read.listing.count)
        qsort(read.listing.file, read.listing.count, sizeof *read.listing.file,
              by_iteration);
    *listing = read.listing;
    return DLC_OK;
}

void dlc_checkpoints_free(dlc_checkpoints *listing) {
    for (size_t i = 0; i < listing->count; i++) {
        dlc_free(listing->file[i].path);
        dlc_free(listing->file[i].net);
    }
    dlc_free(listing->file);
    *listing = (dlc_checkpoints){0};
}

/* ---- Which of them stay ---------------------------------------------------------- */

dlc_status dlc_retention_take_over(const char *folder, const char *net,
                                   dlc_retention *retention) {
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder, net, &listing));
    size_t keep = (size_t)retention->keep;
    retention->first = listing.count > keep && keep > 0
                           ? listing.file[listing.count - keep].iteration
                           : 0;
    dlc_checkpoints_free(&listing);
    return DLC_OK;
}

static dlc_status set_file_aside(const dlc_checkpoint_file *file) {
    size_t length = strlen(file->path) - strlen(SUFFIX);
    char *name = dlc_format("%.*s.superseded" SUFFIX, (int)length, file->path);
    if (!name)
        return DLC_ERR_NOMEM;
    if (rename(file->path, name) == 0)
        dlc_info("%s is from before the run was resumed: renamed to %s", file->path,
                 name);
    else
        dlc_warn("%s is from before the run was resumed, but cannot be renamed: %s",
                 file->path, strerror(errno));
    dlc_free(name);
    return DLC_OK;
}

dlc_status dlc_retention_set_aside(const char *folder, const char *net,
                                   int64_t iteration) {
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder, net, &listing));
    dlc_status status = DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < listing.count; i++)
        if (listing.file[i].iteration > iteration)
            status = set_file_aside(&listing.file[i]);
    dlc_checkpoints_free(&listing);
    return status;
}

/* Replaces a link at once. A file or a folder of this name is the user's, and stays. */
static dlc_status link_to(const char *folder, const char *name, const char *file) {
    struct stat there;
    char *path = dlc_format("%s/%s", folder, name);
    char *part = dlc_format("%s/.%s.part", folder, name);
    dlc_status status = path && part ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && (lstat(path, &there) != 0 || S_ISLNK(there.st_mode))) {
        (void)unlink(part);
        if (symlink(file, part) == 0 && rename(part, path) != 0) {
            dlc_warn("the link %s cannot be made: %s", path, strerror(errno));
            (void)unlink(part);
        }
    }
    dlc_free(part);
    dlc_free(path);
    return status;
}

static dlc_status make_links(const char *folder, const char *net, int64_t iteration,
                             int64_t best) {
    const struct {
        const char *name;
        int64_t iteration;
    } links[] = {{"best", best}, {"last", iteration}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char *path = dlc_checkpoint_path(folder, net, links[i].iteration);
        if (!path)
            return DLC_ERR_NOMEM;
        dlc_status status = links[i].iteration < 0 || access(path, F_OK) != 0
                                ? DLC_OK
                                : link_to(folder, links[i].name,
                                          path + strlen(folder) + 1);
        dlc_free(path);
        DLC_TRY(status);
    }
    return DLC_OK;
}

static int is_kept(const dlc_retention *retention, const dlc_checkpoint_file *file,
                   size_t newer) {
    return newer < (size_t)retention->keep || file->iteration == retention->best ||
           (file->iteration < retention->first &&
            file->iteration != retention->was_best);
}

dlc_status dlc_retention_apply(const char *folder, const char *net, int64_t iteration,
                               const dlc_retention *retention) {
    dlc_checkpoints listing;
    DLC_TRY(make_links(folder, net, iteration, retention->best));
    if (retention->keep == 0)
        return DLC_OK;
    DLC_TRY(dlc_checkpoints_read(folder, net, &listing));
    for (size_t i = 0; i < listing.count; i++) {
        const dlc_checkpoint_file *file = &listing.file[i];
        if (!is_kept(retention, file, listing.count - 1 - i) &&
            unlink(file->path) != 0 && errno != ENOENT)
            dlc_warn("the old checkpoint %s cannot be removed: %s", file->path,
                     strerror(errno));
    }
    dlc_checkpoints_free(&listing);
    return DLC_OK;
}
