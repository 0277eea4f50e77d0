/* Which folder a run goes into and which checkpoint it begins with, from what the user
 * has said. Only looks; rank 0.
 */
#ifndef DLC_TRAIN_RUN_CHOICE_H
#define DLC_TRAIN_RUN_CHOICE_H

#include "train/checkpoint/run_folder.h"

/* Where folders of runs are, that nobody has named. */
#define DLC_RUNS "runs"

/* `named`: [train] run_dir or NULL. Sets `path` (NULL: one is to be named after the
 * time), `begin`, `from` and `fresh`. DLC_ERR_DATA where there is no checkpoint as
 * asked for, DLC_ERR_IO where a folder cannot be read. */
dlc_status dlc_run_choose(const char *named, const char *resume,
                          dlc_run_folder *folder);

/* The folder that `path` lies in, in memory of its own; NULL where that ran out. */
char *dlc_run_parent(const char *path);

#endif
