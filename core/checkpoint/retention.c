/* Removes and renames checkpoints of a run's folder. */
#include "checkpoint/retention.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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
