/* Lists the checkpoints in a folder, recognized by their names,
 * NET-ITERATION.safetensors with at least eight digits, and decides which of them stay:
 * the last ones of a run and the best, to which the links `last` and `best` point. */
#ifndef DLC_CHECKPOINT_LISTING_H
#define DLC_CHECKPOINT_LISTING_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_checkpoint_file {
    char *path; /* own; the folder's path and the file's name */
    char *net;  /* own */
    int64_t iteration;
} dlc_checkpoint_file;

typedef struct dlc_checkpoints {
    dlc_checkpoint_file *file; /* own; by iteration, the newest last */
    size_t count;
} dlc_checkpoints;

/* The path of a checkpoint; release it with dlc_free. NULL if memory runs out. */
char *dlc_checkpoint_path(const char *folder, const char *net, int64_t iteration);

/* Is it the file name (without folder) of a checkpoint? Then sets the length of the
 * net's name, and the iteration. */
int dlc_checkpoint_name(const char *name, size_t *net_length, int64_t *iteration);

/* Calls `visit` with the name of each entry of a folder, until that fails. A folder
 * that does not exist has none; one that cannot be read is DLC_ERR_IO. */
dlc_status dlc_folder_visit(const char *folder,
                            dlc_status (*visit)(void *context, const char *name),
                            void *context);

/* Lists the checkpoints of `net`, or of any net if that is NULL. Release the listing
 * with dlc_checkpoints_free, which also accepts a zeroed one. */
dlc_status dlc_checkpoints_read(const char *folder, const char *net,
                                dlc_checkpoints *listing);
void dlc_checkpoints_free(dlc_checkpoints *listing);

/* ---- Which of them stay ---------------------------------------------------------- */

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

/* Called after each checkpoint that was written, at `iteration`: makes `last` a link to
 * it, and `best` one to the best if there is a file of it, where the file system has
 * links; then removes what is not kept. Warns about files that cannot be removed. */
dlc_status dlc_retention_apply(const char *folder, const char *net, int64_t iteration,
                               const dlc_retention *retention);

#endif
