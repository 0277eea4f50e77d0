/* Chooses the folder of a run and the checkpoint that it begins with, from --run-dir
 * and --resume. Changes nothing on disk. Called on rank 0 by run_folder.c.
 */
#ifndef DLC_CHECKPOINT_RUN_CHOICE_H
#define DLC_CHECKPOINT_RUN_CHOICE_H

#include "base/status.h"

/* The parent of the run folders that the user has not named. */
#define DLC_RUNS "runs"

typedef enum dlc_run_begin {
    DLC_RUN_NEW,    /* without a checkpoint */
    DLC_RUN_FILE,   /* `from` is the checkpoint */
    DLC_RUN_NEWEST, /* the newest one of this net in the folder `from` */
} dlc_run_begin;

typedef struct dlc_run_choice {
    const char *net; /* given */
    char *path;      /* own; NULL: a new folder is to be named after the time */
    dlc_run_begin begin;
    char *from; /* own */
    int fresh;  /* the folder must not hold checkpoints of another run */
} dlc_run_choice;

/* `named` is [train] run_dir or NULL, `resume` the argument of --resume or NULL. `path`
 * and `from` are the caller's, even on failure: DLC_ERR_DATA if the requested
 * checkpoint does not exist, DLC_ERR_IO if a folder cannot be read. */
dlc_status dlc_run_choose(const char *named, const char *resume,
                          dlc_run_choice *choice);

/* The parent folder of `path`; release it with dlc_free. NULL if memory runs out. */
char *dlc_run_parent(const char *path);

#endif
