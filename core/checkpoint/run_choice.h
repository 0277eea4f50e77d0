/* Chooses the folder of a run and the checkpoint that it begins with, from --run-dir
 * and
 * --resume. Changes nothing on disk. Called on rank 0 by run_folder.c.
 */
#ifndef DLC_CHECKPOINT_RUN_CHOICE_H
#define DLC_CHECKPOINT_RUN_CHOICE_H

#include "checkpoint/run_folder.h"

/* The parent of the run folders that the user has not named. */
#define DLC_RUNS "runs"

/* `named` is [train] run_dir or NULL, `resume` the argument of --resume or NULL. Sets
 * `path` (NULL: a new folder is to be named after the time), `begin`, `from` and
 * `fresh`. DLC_ERR_DATA if the requested checkpoint does not exist, DLC_ERR_IO if a
 * folder cannot be read. */
dlc_status dlc_run_choose(const char *named, const char *resume,
                          dlc_run_folder *folder);

/* The parent folder of `path`; release it with dlc_free. NULL if memory runs out. */
char *dlc_run_parent(const char *path);

#endif
