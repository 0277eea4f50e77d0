/* Retention: keeps the last checkpoints of a run and the best, removes the others, and
 * points the links `last` and `best` to them. Applied by rank 0 after each checkpoint
 * that was written. */
#ifndef DLC_CHECKPOINT_RETENTION_H
#define DLC_CHECKPOINT_RETENTION_H

#include <stdint.h>

#include "base/status.h"

typedef struct dlc_retention {
    int64_t keep;  /* how many of the last ones to keep; 0: all */
    int64_t best;  /* iteration of the best, which is kept, too; -1: none */
    int64_t first; /* checkpoints before this iteration are not this run's to remove */
    int64_t was_best; /* except the one that was the best when it resumed; -1: none */
} dlc_retention;

/* For a run that continues in a folder: takes over its last `keep` checkpoints. */
dlc_status dlc_retention_take_over(const char *folder, const char *net,
                                   dlc_retention *retention);

/* Called when a resumed run has written its first checkpoint, of this iteration. Files
 * of later iterations are from before it resumed: damaged, or numbered with another
 * batch. They are renamed, so that they are not taken for the newest. */
dlc_status dlc_retention_set_aside(const char *folder, const char *net,
                                   int64_t iteration);

/* Makes `last` a link to the checkpoint of this iteration, and `best` one to the best,
 * if there is a file of it. Does without them where the file system has no links. */
dlc_status dlc_retention_link(const char *folder, const char *net, int64_t iteration,
                              int64_t best);

/* Removes what is not kept. Warns about files that cannot be removed. */
dlc_status dlc_retention_apply(const char *folder, const char *net,
                               const dlc_retention *retention);

#endif
