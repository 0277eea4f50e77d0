/* Removes, renames and links checkpoints of a run's folder. */
#include "checkpoint/retention.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/listing.h"

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

static dlc_status set_aside(const dlc_checkpoint_file *file) {
    static const char suffix[] = ".safetensors";
    size_t length = strlen(file->path) - strlen(suffix);
    char *name = dlc_format("%.*s.superseded%s", (int)length, file->path, suffix);
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
            status = set_aside(&listing.file[i]);
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

dlc_status dlc_retention_link(const char *folder, const char *net, int64_t iteration,
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

dlc_status dlc_retention_apply(const char *folder, const char *net,
                               const dlc_retention *retention) {
    dlc_checkpoints listing;
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
